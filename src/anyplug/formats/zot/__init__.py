"""zot: long-running extensions that communicate in frames."""
