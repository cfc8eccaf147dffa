"""Calling experts: whom, where, when, how often, and what a failure leads to."""
