"""Interpreters that are started ahead, and wait before a script's first line."""
