"""OAuth credentials: their access tokens are kept fresh, and their consent is asked for."""
