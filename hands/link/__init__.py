"""The daemon's end of its link to a brain: which, whether it is obeyed, and what it asks."""
