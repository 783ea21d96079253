"""Which plugins exist and which may run: discovery, approvals, and the snapshot that calls use."""
