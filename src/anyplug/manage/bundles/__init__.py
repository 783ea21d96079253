"""Plugins of other agents: folders whose MCP servers, commands and skills become one of our MCP plugins."""
