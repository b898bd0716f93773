"""The checks, a file for what they are about."""
