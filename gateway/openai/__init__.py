"""The gateway as OpenAI's clients know one: chat completions, responses and models, over runs and their events."""
