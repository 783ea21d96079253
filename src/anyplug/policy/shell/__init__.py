"""Parse shell commands as a shell would, to find what they run and which files they change."""
