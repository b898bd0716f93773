"""Hand types that others wrote in Python: each hand in a process of its own."""
