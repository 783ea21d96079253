"""Policies in Rego: what an agent's tools may do."""
