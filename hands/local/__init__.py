"""The daemon's local socket: how it stands, to drain it, to stop hands; and who asks it."""
