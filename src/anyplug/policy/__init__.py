"""Policies: what an agent's tools may do, said in Rego."""
