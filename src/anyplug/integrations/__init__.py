"""The host's tools as other libraries want them. Each module imports its library, and is imported only by its users."""
