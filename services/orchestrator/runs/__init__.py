"""Runs: accepted, executed, watched, and their results."""
