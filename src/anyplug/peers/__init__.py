"""Plugins whose processes run for longer than one call: start, restart, events, guards, panels."""
