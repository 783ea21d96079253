"""What people do with plugins besides calling them: install, check, export, connect, scaffold, diagnose."""
