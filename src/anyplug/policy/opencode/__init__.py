"""The policy gate for OpenCode's own tools: a plugin of OpenCode, and its installation."""
