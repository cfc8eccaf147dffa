"""Limits on requests: rates, quotas, concurrent runs and sizes."""
