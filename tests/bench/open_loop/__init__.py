"""Open-loop load: runs that arrive independently of replies, up to the knee, above it, and for a long time."""
