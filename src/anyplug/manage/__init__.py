"""Plugin management apart from calls: install, check, export, connect, scaffold, diagnose."""
