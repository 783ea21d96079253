"""Stavrobot: bundles of tools in folders, each an executable."""
