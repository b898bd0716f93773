"""The brain's side of the vault: what a session asks of remote MCP servers."""
