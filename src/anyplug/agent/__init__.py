"""Conversations with a model that calls the host's tools, for `chat`, `ask` and the console."""
