"""Stubs generated from proto/carpal/v1; regenerate with scripts/generate."""
