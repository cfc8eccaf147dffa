"""Sanitizes text from other parties."""


def plain(text: str, limit: int) -> str:
    """One line without control and invisible characters, cut to a number of characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
