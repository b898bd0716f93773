"""A browser as a hand: what runs inside its sandbox."""
