"""Cyclop One: a folder with one executable."""
