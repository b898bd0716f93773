"""The brain: a stateless harness runner."""
