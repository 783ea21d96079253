"""Secrets: environment variables, the vault, and masking in everything that leaves."""
