"""One driven session: its log, its lease, and the transcript that is folded from it."""
