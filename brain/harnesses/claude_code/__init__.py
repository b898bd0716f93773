"""Claude Code as a harness: its conversation is made of the log, its model and tools are ours."""
