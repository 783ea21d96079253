"""The resident host: one process for each home that other commands and agents attach to."""
