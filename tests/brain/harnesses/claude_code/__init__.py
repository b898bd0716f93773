"""Tests of Claude Code as a harness: the real program, a scripted model."""
