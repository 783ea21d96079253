"""The layers of the sandbox on Linux: mounts, Landlock, seccomp, the broker, limits."""
