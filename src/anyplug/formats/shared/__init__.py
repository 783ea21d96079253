"""Shared by formats: the contract, manifests, scripts, one-shot and long-running processes."""
