"""Unicode repair of text from JSON."""


def replace_surrogates(text: str) -> str:
    """Joins surrogate pairs, and replaces lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
