"""The agent of `chat`, `ask` and the page: conversations with a model that calls the host's tools."""
