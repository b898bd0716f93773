"""The hand daemon and its hand types."""
