"""An expert whose outputs change without a new revision: `python -m tests.support.changing_expert`."""
