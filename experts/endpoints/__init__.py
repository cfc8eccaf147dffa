"""Shared code of experts whose models run at endpoints: data policy, retries, HTTP errors, prompts, results."""
