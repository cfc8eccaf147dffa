"""Whole runs: what they take beyond their longest way, beside others who run the same graph."""
