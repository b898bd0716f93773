"""What keeps hands apart from this machine and from each other, for every hand type."""
