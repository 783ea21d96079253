"""Start, watch, feed and end processes."""
