"""What compiled policies are: generated functions, and the names that they refer to."""
