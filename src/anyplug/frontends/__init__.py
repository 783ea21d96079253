"""Ways in: they parse, call the host and render; no rule lives here."""
