"""Pipelines and batches, as both doors know them."""
