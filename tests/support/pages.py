"""Parts of Markdown pages."""

from pathlib import Path


def read_section(page: Path, title: str) -> str:
    """Returns the text of a page's section of the second level."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, f"{page.name} has no section {title}"
    return text
