"""Tests of the hand type `emulator`."""
