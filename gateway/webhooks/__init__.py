"""Webhooks: notifications of ended runs and batches, as specified by Standard Webhooks."""
