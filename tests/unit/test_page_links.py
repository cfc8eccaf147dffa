"""Markdown pages: every file and heading that a page links to exists, and long pages have a table of contents."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.readme import ROOT

pytestmark = pytest.mark.needs("git")

LONG = 120
"""Lines after which a README needs a table of contents."""
LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
PAGES = [Path(name) for name in LISTED.splitlines()]

_CODE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_PUNCTUATION = re.compile(r"[^\w\- ]")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(_CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))):
        slug = _slug(heading)
        seen[slug] = seen.get(slug, -1) + 1
        if seen[slug]:
            seen[f"{slug}-{seen[slug]}"] = 0
    return frozenset(seen)


def _slug(heading: str) -> str:
    return _PUNCTUATION.sub("", _LINK_TEXT.sub(r"\1", heading).lower()).replace(" ", "-")


def links(page: Path) -> Iterator[str]:
    """Targets of the links of a page to other pages, files and headings of this repository."""
    text = _INLINE_CODE.sub("", _CODE.sub("", (ROOT / page).read_text(encoding="utf-8")))
    targets = (markdown or html for markdown, html in _LINK.findall(text))
    return (target for target in targets if not re.match(r"[a-z]+:", target))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_linked_files_and_headings_exist(page: Path) -> None:
    assert [target for target in links(page) if not _exists(page, target)] == []


def _exists(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (ROOT / page.parent / name).resolve() if name else ROOT / page
    if not file.is_relative_to(ROOT) or not file.exists():
        return False
    return not anchor or anchor in anchors(file.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name == "README.md"], ids=str)
def test_long_readme_lists_its_sections_first(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if text.count("\n") <= LONG:
        return
    sections = re.findall(r"^## (.+)$", _CODE.sub("", text), re.MULTILINE)
    before = text.partition("\n## ")[0]
    assert [title for title in sections if f"](#{_slug(title)})" not in before] == []


def test_headings_become_anchors_as_on_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What `it` costs: a *lot*\n```sh\n# not a heading\n```\n## Twice\n## Twice\n## [OpenAI's](x) API\n"
    )
    assert anchors(page) == {"what-it-costs-a-lot", "twice", "twice-1", "openais-api"}
