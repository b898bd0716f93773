"""The one way out: every request that the vault makes to somebody else's server goes by here."""
