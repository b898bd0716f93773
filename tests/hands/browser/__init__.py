"""Tests of browser hands, by real Chromium and pages on loopback."""
