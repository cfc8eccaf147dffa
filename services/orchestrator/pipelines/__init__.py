"""Pipelines: plans kept under names, with typed parameters."""
