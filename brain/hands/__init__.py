"""Hands as a session has them: placed, provisioned, called, heard, released."""
