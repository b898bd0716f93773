"""Context policies: events in, messages for the model out; one a file. Pure."""
