"""Batches on the command line: items from files or a table, and a folder of results."""
