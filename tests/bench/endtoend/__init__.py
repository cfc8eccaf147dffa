"""Whole runs through the gateway: what they take beyond their longest way, by who plans, selects and answers."""
