"""Agents that speak MCP: a server over a host, on the `mcp` SDK."""
