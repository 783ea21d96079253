"""New plugins from templates, one for each format and language."""
