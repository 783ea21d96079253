"""One module for each plugin format: a folder becomes a Plugin, a call becomes that format's bytes."""
