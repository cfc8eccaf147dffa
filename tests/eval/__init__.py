"""How good the plans are: `python -m tests.eval FILE.jsonl`, and `make eval` for the table."""
