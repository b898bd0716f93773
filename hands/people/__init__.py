"""People inside hands: who may enter, what of it a log is told, and the stream they come by."""
