"""Credentials: what they are, where they are kept, and how one is used."""
