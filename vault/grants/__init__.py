"""Grants: the right of a session to use named credentials, through one caller."""
