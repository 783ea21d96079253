"""Turns a syntax tree into Python code."""
