"""Runs that come when they come, whether or not earlier ones are done: to the knee, past it, and for a long time."""
