"""Pipelines: plans stored by name, with typed parameters."""
