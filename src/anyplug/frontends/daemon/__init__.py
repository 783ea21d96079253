"""The daemon: one process per home that other commands and agents attach to."""
