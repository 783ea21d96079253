"""The host: loads plugins, runs calls, and owns everything that runs."""
