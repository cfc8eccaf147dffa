"""The web page's files: imports resolve, and no module creates markup or uses external resources."""

import re
from pathlib import Path

import pytest

from gateway.web.site_files import Site

DATA = Path(__file__).parents[1] / "data"
SITE = Site.packaged()
MODULES = {name: content.decode() for name, content in SITE.contents.items() if name.endswith(".js")}


@pytest.mark.parametrize("name", MODULES)
def test_web_module_imports_only_siblings(name: str) -> None:
    imported = re.findall(r'^import .* from "(.*)";$', MODULES[name], re.MULTILINE)
    assert [each for each in imported if not each.startswith("./") or each[2:] not in SITE.contents] == []


@pytest.mark.parametrize("name", MODULES)
def test_web_module_creates_no_markup(name: str) -> None:
    code = MODULES[name]
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", code) == []


def test_page_has_no_inline_code_and_versioned_urls() -> None:
    page = SITE.page.decode()
    assert re.findall(r"<style|<script(?![^>]*src=)| on\w+=| style=", page) == []
    parts = re.findall(r'"/web/([^"/]+)/([^"]+)"', page)
    assert {version for version, _ in parts} == {SITE.version}
    assert {name for _, name in parts} <= SITE.contents.keys()


def test_page_samples_equal_test_samples() -> None:
    samples = re.findall(r'file: "(.*?)"', MODULES["samples.js"])
    assert len(samples) > 3
    for name in samples:
        assert SITE.contents[name] == (DATA / name).read_bytes(), name
