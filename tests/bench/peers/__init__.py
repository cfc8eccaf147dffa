"""Comparison with other model servers and with other ways to run the same plans, each in its own process."""
