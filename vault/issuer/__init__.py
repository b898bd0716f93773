"""The vault as an issuer of tokens that say which agent asks, and in which session."""
