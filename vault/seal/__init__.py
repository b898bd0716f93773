"""The seal: the key that opens the vault, from outside of its database, and what it opens."""
