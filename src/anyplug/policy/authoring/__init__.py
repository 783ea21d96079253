"""For people who write policies: start, lint, validate, try and replay them."""
