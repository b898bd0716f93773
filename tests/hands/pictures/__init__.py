"""Tests of pictures that leave a hand."""
