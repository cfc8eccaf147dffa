"""Tells tenants' own servers of runs that have ended, by the rules of Standard Webhooks."""
