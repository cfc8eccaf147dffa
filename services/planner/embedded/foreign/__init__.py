"""Requests in other languages than English: told apart, glossed in English to be planned, or said to be a riddle."""
