"""The daemons: which may link, the link of each, and the way to their hands."""
