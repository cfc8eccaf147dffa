"""An expert whose answers change without a new revision: `python -m tests.support.wavering`."""
