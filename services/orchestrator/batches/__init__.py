"""Batches: one plan over many items, each a run of its own, driven by whichever orchestrator holds the batch."""
