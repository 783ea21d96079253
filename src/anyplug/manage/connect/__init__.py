"""Add our server to the configuration of other programs, and remove it, leaving everything else unchanged."""
