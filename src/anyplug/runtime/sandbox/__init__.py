"""Confinement: what a plugin's programs may do, held by the kernel. `profile` says what, the others how."""
