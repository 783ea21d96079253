"""Processes and bytes; has never heard of a tool."""
