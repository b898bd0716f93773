"""The Session service: each RPC checked, put to the rules or the readers, and answered."""
