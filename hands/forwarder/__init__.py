"""A hand's one way out, from the daemon's side: an HTTP proxy that refuses what no rule allows.

`rules` and `heads` decide, `guard` dials, `server` listens in the hand's folder.
Inside the hand, `hands/inside/relay.py` passes bytes to it.
"""
