"""How the rivals of the host wait."""

WAIT_SECONDS = 0.001
"""For a batch to fill: with many callers, hardly at all is enough."""
