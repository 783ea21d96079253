"""The proxy for programs that may connect to named hosts only."""
