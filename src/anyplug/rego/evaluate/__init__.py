"""Evaluates compiled rules."""
