"""Long-running plugins: start, restart, events, guards, panels."""
