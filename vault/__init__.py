"""The vault: certificate authority, and later every credential."""
