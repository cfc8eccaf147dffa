"""An expert for a kind of task that nobody knew before, started by `python -m tests.support.shouting`."""
