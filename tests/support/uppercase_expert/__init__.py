"""An expert that returns texts in capital letters, as a task of its own: `python -m tests.support.uppercase_expert`."""
