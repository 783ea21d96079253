"""What is on disk: settings, database, journal, logs, digests, code snapshots."""
