"""One catalogue of tools over many machines, on NATS with JetStream. Nothing here is imported without a fleet."""
