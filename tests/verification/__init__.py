"""Verification of models with their real weights: `make verify-models`, for a machine with a network.

Each card's files are downloaded, and its model answers a golden case (cases.py) through the served expert, in a process
of its own. What was learnt is written to the card: the commit, the licence on the Hub, and in "measured" the bytes.
"""
