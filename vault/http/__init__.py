"""Inbound HTTPS over mutual TLS, for what is HTTP by nature: MCP, git, egress."""
