"""Fault injection campaign: runs with known results on real processes, which are killed and paused at random."""
