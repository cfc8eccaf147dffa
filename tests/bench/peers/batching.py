"""Batching settings of the compared servers."""

WAIT_SECONDS = 0.001
"""Time to wait for a batch to fill; with many callers a short wait suffices."""
