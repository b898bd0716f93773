"""Harnesses: loops that yield effects; one a file."""
