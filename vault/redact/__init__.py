"""Striking secrets out of what comes from outside, before anything reads it."""
