"""Comparison of models on the same files, run by `hugginggpt compare`."""
