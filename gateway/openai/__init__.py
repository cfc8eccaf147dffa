"""The interface of OpenAI's API: chat completions, responses and models, served by runs."""
