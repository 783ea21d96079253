"""A session: frames to and from a process that runs for longer than one call."""
