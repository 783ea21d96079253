"""Turns the text of a policy into a syntax tree."""
