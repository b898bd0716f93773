"""The proxy between brains and remote MCP servers: what a brain may ask, the vault asks anew."""
