"""Requests to URLs that others chose: to public addresses alone, by https or http, bounded in size and time."""
