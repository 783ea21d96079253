"""Workbench: plugins in Node."""
