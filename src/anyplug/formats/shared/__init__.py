"""What several formats use: the contract, manifests, scripts, one-shot and long-lived processes."""
