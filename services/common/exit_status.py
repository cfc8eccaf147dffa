"""Exit statuses that one process of a deployment understands of another."""

MISSING_DEPENDENCY = 78
"""A package that the process needs is not installed: starting it again cannot help. sysexits.h calls it EX_CONFIG."""
