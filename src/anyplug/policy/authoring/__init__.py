"""For policy authors: start, lint, validate, try and replay policies."""
