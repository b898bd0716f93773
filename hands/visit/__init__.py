"""A person's end of a tunnel into a hand, on the person's own machine."""
