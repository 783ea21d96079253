"""One module for each plugin format: turn a folder into a Plugin, and a call into the format's bytes."""
