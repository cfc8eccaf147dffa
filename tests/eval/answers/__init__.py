"""Requests with real files, sent to the local stack and judged on the answer."""
