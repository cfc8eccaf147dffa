"""Client of OpenAI-compatible LLM endpoints, shared by the services."""
