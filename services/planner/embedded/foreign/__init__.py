"""Requests in other languages than English: detected, glossed in English and planned, or declined."""
