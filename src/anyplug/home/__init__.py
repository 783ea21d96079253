"""What lies on disk: settings, database, journal, logs, digests, snapshots of code."""
