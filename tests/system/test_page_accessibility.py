"""Every page of the web page passes axe, and its labels fit on phones, tablets and desktops."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import CHROMIUM, open_tab
from tests.support.required_programs import NODE_MODULES
from tests.system.conftest import ROOT, LocalStack
from tests.system.test_page import SIGN

pytestmark = [
    pytest.mark.slow,
    CHROMIUM,
    pytest.mark.needs("axe-core"),
    pytest.mark.asyncio(loop_scope="session"),
]

WIDTHS = (390, 640, 1280)
BROKEN = b"\x89PNG\r\n\x1a\n no picture"
LONG_NAME = "a-photograph-of-the-sign-above-the-entrance-of-the-shop.png"

PLAN = [
    {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "file1"}}},
    {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}},
    {"id": 3, "task": "automatic-speech-recognition", "arguments": {"audio": {"task_id": 2, "output": "audio"}}},
    {
        "id": 4,
        "task": "document-question-answering",
        "arguments": {"image": {"input": "file1"}, "question": "What does it say?"},
    },
    {"id": 5, "task": "token-classification", "arguments": {"text": {"task_id": 1, "output": "text"}}},
    {"id": 6, "task": "text-classification", "arguments": {"text": {"task_id": 3, "output": "text"}}},
]
READ = [{"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "sign"}}}]

AXE = """async () => {
    const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
        "best-practice", "experimental"], resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.html.slice(0, 160)}`));
}"""
"""Violations of all rules, experimental ones included."""

CUT_LABELS = """() => {
    const cut = [...document.querySelectorAll("body *:not(svg *)")].filter(element => element.checkVisibility()
        && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0
        && getComputedStyle(element).overflowX === "hidden" && !element.closest(".unseen"));
    const shortened = [...document.querySelectorAll("svg .name, svg .by, .row-name, .task-name, .row-time")]
        .filter(element => element.textContent.endsWith("…"));
    const wide = [...document.querySelectorAll("svg .task")].filter(task => {
        const box = task.querySelector(".box").getBBox();
        return [...task.querySelectorAll("text")].some(text => {
            const { x, y, width, height } = text.getBBox();
            return x + width > box.x + box.width || y + height > box.y + box.height;
        });
    });
    return [...cut, ...shortened, ...wide].map(element => element.outerHTML.slice(0, 160));
}"""
"""Labels that are cut off, shortened, or wider than the box around them."""


async def created(http: httpx.AsyncClient, path: str, body: Any, key: str) -> str:
    reply = await http.post(path, json=body)
    assert reply.is_success, reply.text
    return str(reply.json()[key])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def addresses(local_stack: LocalStack) -> Mapping[str, str]:
    """Addresses of all kinds of pages, by name."""
    async with httpx.AsyncClient(base_url=local_stack.url, timeout=60) as http:

        async def run(name: str, content: bytes, **spec: Any) -> str:
            form = {"spec": (None, json.dumps(spec).encode()), "file": (name, content)}
            return str((await http.post("/v1/runs", files=form, headers={"prefer": "wait=40"})).json()["run_id"])

        sign = SIGN.read_bytes()
        photo = (ROOT / "tests" / "data" / "face.jpg").read_bytes()
        completed = await run(LONG_NAME, sign, request="Read it aloud, and find out what it says.", plan=PLAN)
        failed = await run("broken.png", BROKEN, request="Read it.", plan=PLAN[:2])
        found = await run(
            "face.jpg", photo, request="How many people are in this photo? Also make a pencil sketch of it"
        )
        unplannable = await created(http, "/v1/runs", {"request": "Draw a cat"}, "run_id")
        waiting = await created(http, "/v1/runs", {"request": "Is this happy? “We won.”", "mode": "approve"}, "run_id")
        for plan in (READ, [*READ, {"id": 2, "task": "text-to-speech", "arguments": {"text": "Done."}}]):
            (
                await http.put("/v1/pipelines/axe", json={"plan": plan, "description": "Reads a sign."})
            ).raise_for_status()
        uploaded = [
            (await http.post("/v1/files", files={"file": (name, content)})).json()["artifact"]
            for name, content in ((LONG_NAME, sign), ("broken.png", BROKEN))
        ]
        items = [{"name": file["name"], "inputs": [{"name": "sign", "artifact": file}]} for file in uploaded]
        batch = await created(http, "/v1/pipeline-batches", {"pipeline": {"name": "axe"}, "items": items}, "batch_id")
    return {
        "start": "/",
        "completed run": f"/?run={completed}",
        "failed run": f"/?run={failed}",
        "run with pictures": f"/?run={found}",
        "unplannable run": f"/?run={unplannable}",
        "run that waits for approval": f"/?run={waiting}",
        "unknown run": "/?run=run_nowhere",
        "pipelines": "/?pipelines",
        "pipeline": "/?pipeline=axe",
        "batches": "/?batches",
        "batch": f"/?batch={batch}",
        "unknown address": "/nowhere",
    }


PAGES = (
    "start",
    "completed run",
    "failed run",
    "run with pictures",
    "unplannable run",
    "run that waits for approval",
    "unknown run",
    "pipelines",
    "pipeline",
    "batches",
    "batch",
    "unknown address",
)


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, local_stack: LocalStack, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    """A page with the colours of the test's parameter."""
    context = await browser.new_context(
        viewport={"width": 1280, "height": 900},
        reduced_motion="reduce",
        color_scheme=getattr(request, "param", "light"),
    )
    tab = await open_tab(context, local_stack.url)
    yield tab.page
    await context.close()


async def load(page: Page, address: str) -> None:
    """Opens a page and waits until its content is shown; opens all details."""
    await page.goto(address)
    await expect(page.locator(".offer, .home a, .entry, .item-name, .task-details, .problem").first).to_be_visible()
    await expect(page.locator("h1")).not_to_have_text("…")
    await page.evaluate("document.querySelectorAll('.task-details').forEach(each => { each.open = true })")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
async def test_axe_finds_nothing(page: Page, addresses: Mapping[str, str], local_stack: LocalStack, name: str) -> None:
    await load(page, local_stack.url + addresses[name])
    await page.evaluate((NODE_MODULES / "axe-core" / "axe.min.js").read_text())
    violations = await page.evaluate(AXE)
    assert violations == [], "\n".join(violations)


@pytest.mark.parametrize("dialog", ["Delete", "Save this plan"])
async def test_axe_finds_nothing_in_a_dialog(
    page: Page, addresses: Mapping[str, str], local_stack: LocalStack, dialog: str
) -> None:
    await load(page, local_stack.url + addresses["completed run"])
    await page.get_by_role("button", name=dialog, exact=True).click()
    await page.evaluate((NODE_MODULES / "axe-core" / "axe.min.js").read_text())
    violations = await page.evaluate(AXE)
    assert violations == [], "\n".join(violations)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
async def test_labels_fit(
    page: Page, addresses: Mapping[str, str], local_stack: LocalStack, width: int, name: str
) -> None:
    await page.set_viewport_size({"width": width, "height": 900})
    await load(page, local_stack.url + addresses[name])
    assert await page.evaluate(CUT_LABELS) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
