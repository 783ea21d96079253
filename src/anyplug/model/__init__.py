"""The nouns that every part shares: types, errors, permissions, schemas, names. No input or output."""
