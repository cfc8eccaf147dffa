"""Run records, and verification of runs by rerunning their deterministic tasks."""
