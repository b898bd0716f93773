"""The checks, a file for each thing they are about."""
