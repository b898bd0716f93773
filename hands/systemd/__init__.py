"""The daemon as a service of its machine: its unit, installed and taken away."""
