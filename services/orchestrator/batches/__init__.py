"""Batches: one plan over many items, each of which is a run; the orchestrator that holds the lease runs the batch."""
