"""Pipelines and batches."""
