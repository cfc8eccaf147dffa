"""Text as JSON may bring it, made what UTF-8 can carry."""


def whole(text: str) -> str:
    """The text with halves of surrogate pairs joined, and lone ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
