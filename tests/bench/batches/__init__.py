"""Batches: cost per item, utilization of a model, and effect on interactive runs."""
