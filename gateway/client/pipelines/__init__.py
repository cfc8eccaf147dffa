"""Pipelines and batches: what a gateway tells of them, and how they are made."""
