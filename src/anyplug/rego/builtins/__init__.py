"""The builtins of Rego, by group; importing `every` declares them all."""
