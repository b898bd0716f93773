"""The life of a hand: made, mounted, run, saved, taken up by the next daemon, and ended."""
