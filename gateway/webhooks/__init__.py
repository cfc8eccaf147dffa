"""Tells tenants' own servers of runs and batches that have ended, by the rules of Standard Webhooks."""
