"""MCP for agents: a server on top of a host, built on the `mcp` SDK."""
