"""The client of OpenAI-compatible endpoints that the rooms share."""
