"""The last word is the owner's: their policy, what it strikes out, and the audit they read."""
