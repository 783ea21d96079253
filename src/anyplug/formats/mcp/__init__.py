"""MCP: servers of the Model Context Protocol, as plugins."""
