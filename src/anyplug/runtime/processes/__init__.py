"""Processes: how they are started, watched, fed and ended."""
