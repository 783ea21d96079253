"""What plugins there are and which of them may run: discovery, approvals, and the snapshot that calls use."""
