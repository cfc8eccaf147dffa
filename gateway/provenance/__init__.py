"""The record of a run: what did what, without content, and whether it does the same again."""
