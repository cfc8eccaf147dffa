"""Plans without an LLM: by the words of a request, the types of ports and what there is to work with."""
