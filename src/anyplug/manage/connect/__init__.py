"""Puts our server into the configuration of other programs, and takes it out again, touching nothing else of it."""
