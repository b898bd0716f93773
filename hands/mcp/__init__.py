"""A hand that is an MCP server: what runs in its sandbox, beside the server."""
