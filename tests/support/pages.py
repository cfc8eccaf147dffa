"""Parts of Markdown pages."""

import re
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def read_section(page: Path, title: str) -> str:
    """Returns the text of a page's section of the second level."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, f"{page.name} has no section {title}"
    return text


def code_blocks(text: str, language: str) -> Iterator[str]:
    """Code blocks in a language, without their indentation."""
    for indent, found, code in _BLOCK.findall(text):
        if found == language:
            yield re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
