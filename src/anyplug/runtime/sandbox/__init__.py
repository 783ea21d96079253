"""The sandbox: what a plugin's programs may do, enforced by the kernel. `profile` defines what, the others how."""
