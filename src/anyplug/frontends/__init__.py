"""The frontends: they parse, call the host and render; they contain no rules."""
