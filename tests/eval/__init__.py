"""Evaluation of planners on labelled requests: `python -m tests.eval FILE.jsonl`, and `make eval` for the tables."""
