"""The session service: append-only logs and the lease table."""
