"""Chromium for tests; its pages must log no error and call no other server than their own."""

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

PICTURES = Path(__file__).parents[1] / "output"
"""Folder for screenshots."""

SECONDS = 30.0

CHROMIUM = pytest.mark.needs("chromium")


@dataclass
class Tab:
    """A browser page whose errors and requests are recorded."""

    page: "Page"
    url: str
    errors: list[str] = field(default_factory=list)
    """Console errors, including violations of the content security policy, and uncaught exceptions."""
    external_requests: list[str] = field(default_factory=list)
    """Requested addresses of other servers."""
    expected: tuple[str, ...] = ()
    """Parts of error messages that the test expects."""

    async def open(self, path: str = "/") -> "Page":
        await self.page.goto(self.url + path)
        return self.page

    async def picture(self, name: str, **options: Any) -> None:
        PICTURES.mkdir(exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"page-{name}.png", **options)

    def check(self) -> None:
        unexpected = [each for each in self.errors if not any(part in each for part in self.expected)]
        assert unexpected == []
        assert self.external_requests == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator["Browser"]:
    """Debian's chromium; it has no sandbox for root."""
    from playwright.async_api import async_playwright  # noqa: PLC0415  # most tests do not need it

    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        try:
            yield chromium
        finally:
            await chromium.close()


async def open_tab(context: "BrowserContext", url: str) -> Tab:
    """Opens a page whose own server is the one at the address."""
    page = await context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    tab = Tab(page, url)
    own = urlsplit(url).netloc

    def record_request(address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in {"blob", "data"} and parts.netloc != own:
            tab.external_requests.append(address)

    page.on("request", lambda request: record_request(request.url))
    page.on(
        "console", lambda message: tab.errors.append(message.text) if message.type in {"error", "warning"} else None
    )
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    page.on("dialog", lambda dialog: tab.errors.append(f"dialog: {dialog.message}"))
    return tab
