"""The one way out for programs that may talk to named hosts only."""
