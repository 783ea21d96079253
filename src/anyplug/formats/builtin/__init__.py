"""The host's own tools."""
