"""The store: tokens, certificates that were issued, and what is revoked."""
