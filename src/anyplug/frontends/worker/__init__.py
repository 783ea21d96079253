"""Offer the plugins of this machine to a fleet: another way in, whose callers are gateways."""
