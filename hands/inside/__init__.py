"""What runs inside a hand, under the supervisor: standard library only, no third-party import."""
