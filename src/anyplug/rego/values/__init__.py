"""Rego's values: numbers, texts, collections, JSON, errors."""
