"""Processes and bytes. Knows nothing about tools."""
