"""An expert with a new task: `python -m tests.support.shouting`."""
