"""Tests of hand types that others wrote."""
