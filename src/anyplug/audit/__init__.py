"""The audit log: one record for each call, chained by hashes."""
