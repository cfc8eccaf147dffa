"""The page at /."""
