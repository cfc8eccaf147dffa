"""Batches on the web page: start with many files, progress, cancel, resume, and saved results."""

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Page, Route, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import LocalStack
from tests.system.test_page import SIGN, ended, held
from tests.system.test_page_pipelines import save_pipeline, sound
from tests.system.test_page_safety import HOSTILE, IMG, inert

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

READ = [{"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "sign"}}}]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


def picture(name: str, content: bytes | None = None) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": content or SIGN.read_bytes()}


def note(name: str, text: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": text.encode()}


async def start_batch(tab: Tab, local_stack: LocalStack, *files: FilePayload, fresh: bool = False) -> Page:
    """Starts a batch over the files and opens its page."""
    await save_pipeline(local_stack, "signs", plan=READ, description="Reads signs.")
    page = await tab.open("/?pipeline=signs")
    await page.set_input_files("#parameter-1-files", list(files))
    await page.get_by_label("Ignore cached results").set_checked(fresh)
    await page.get_by_role("button", name=f"Run on {len(files)} files").click()
    await expect(page).to_have_url(re.compile(r"\?batch=batch_"))
    return page


async def saved(page: Page, text: str, folder: Path) -> Path:
    """Results as the page downloads them."""
    async with page.expect_download() as saving:
        await page.get_by_role("group", name="Save the results").get_by_role("link", name=text).click()
    await (await saving.value).save_as(folder / text)
    return folder / text


async def test_two_bad_files_fail_two_items_of_a_batch(tab: Tab, local_stack: LocalStack, tmp_path: Path) -> None:
    tab.expected = ("400",)
    broken, letter = picture("broken.png", b"\x89PNG\r\n\x1a\n no picture"), picture("letter.png", b"%PDF-1.4\n%%EOF")
    page = await start_batch(tab, local_stack, *(picture(f"sign-{n}.png") for n in range(10)), broken, letter)
    await ended(page, "incomplete")
    await expect(page.locator(".page-header")).to_contain_text("A batch of 12 items with pipeline signs, version 1")
    await expect(page.locator(".states li")).to_have_text(["10 completed", "2 failed"])
    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuetext", "12 of 12")
    items = page.get_by_role("list", name="Items").locator("li")
    await expect(items).to_have_count(12)
    await expect(items.first).to_contain_text("We are so happy")
    await expect(items.nth(10)).to_contain_text("cannot decode broken.png")
    await expect(items.nth(11)).to_contain_text(
        "cannot accept letter.png: its name means image/png, but its content is application/pdf"
    )
    await expect(page.locator(".errors li")).to_have_text([re.compile("broken.png"), re.compile("letter.png")])
    await expect(page.locator(".times dl").last.locator("dt")).to_have_count(5)
    await page.get_by_role("group", name="Filter items").get_by_role("button", name="failed 2").click()
    await expect(items).to_have_count(2)
    first, *_ = lines = (await saved(page, "JSON lines", tmp_path)).read_text().splitlines()
    assert len(lines) == 12
    assert json.loads(first)["name"] == "sign-0.png"
    with (await saved(page, "CSV", tmp_path)).open(newline="") as table:
        assert [row["state"] for row in csv.DictReader(table)] == ["completed"] * 10 + ["failed"] * 2
    await page.get_by_role("button", name="all 12").click()
    await items.first.get_by_role("link", name="sign-0.png").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("sign-0.png")
    await expect(page.locator(".page-header")).to_contain_text("Item 1 of a batch with pipeline signs, version 1")
    await ended(page)


async def test_batch_can_be_followed_cancelled_and_resumed(tab: Tab, local_stack: LocalStack) -> None:
    with held(local_stack):
        page = await start_batch(tab, local_stack, *(picture(f"sign-{n}.png") for n in range(30)), fresh=True)
        await page.evaluate("""() => {
            window.announcements = [];
            const live = document.getElementById("live");
            new MutationObserver(() => window.announcements.push(live.textContent)).observe(live, { childList: true });
        }""")
        await expect(page.locator(".states .is-running")).to_be_visible()
        await expect(page.locator(".state .badge")).to_have_text("running")
        await expect(page.get_by_role("list", name="Items").locator(".is-running").first).to_be_visible()
        await tab.picture("batch-running", full_page=True)
        other = await tab.page.context.new_page()
        await other.goto(f"{tab.url}/?batches")
        await expect(other.locator(".entry").first.locator(".badge")).to_have_text("running")
        await page.get_by_role("button", name="Cancel").click()
        await ended(page, "cancelled")
        await expect(page.locator(".states .is-cancelled")).to_be_visible()
        await expect(other.locator(".entry").first.locator(".badge")).to_have_text("cancelled")
    await expect(page.get_by_role("list", name="Items").locator(".is-cancelled").first).to_be_visible()
    await page.get_by_role("button", name="Resume the other").click()
    await ended(page)
    await expect(page.locator(".states li")).to_have_text(["30 completed"])
    await expect(page.get_by_role("list", name="Items").locator(".is-succeeded")).to_have_count(30)
    await expect(page.locator(".pace")).to_have_text(re.compile("^30 of 30, in "))
    await expect(page.locator("#live")).to_have_text(re.compile(r"The batch has ended: completed\.$"))
    assert "The batch has ended: cancelled." in " ".join(await page.evaluate("window.announcements"))


async def test_failed_items_can_be_retried(tab: Tab, local_stack: LocalStack) -> None:
    page = await start_batch(tab, local_stack, picture("sign.png"), picture("bad.png", b"\x89PNG\r\n\x1a\n no picture"))
    await ended(page, "incomplete")
    async with page.expect_response(re.compile("/resume$")) as resumed:
        await page.get_by_role("button", name="Retry the failed item").click()
    assert (await resumed.value).request.post_data == '{"failed_only":true}'
    await ended(page, "incomplete")
    await expect(page.locator(".states li")).to_have_text(["1 completed", "1 failed"])


async def test_broken_batch_stream_resumes(tab: Tab) -> None:
    def batch_state(state: str, done: int) -> dict[str, Any]:
        counts = {"total": 10_000, "completed": 9_993 + done, "failed": 1, "waiting": 6 - done}
        batch_json = {"batch_id": "batch_x", "state": state, "spec": {"request": "Read these."}, "counts": counts}
        return {**batch_json, "items_per_second": 2.52, "remaining": 75.2, "waiting_for": "An expert wakes up."}

    seen = asyncio.Event()
    batch_json = [(batch_state("running", 2), batch_state("running", 3)), (batch_state("incomplete", 6),)]

    async def events(route: Route) -> None:
        if len(batch_json) == 1:
            await seen.wait()
        frames = (f"event: batch\ndata: {json.dumps(batch)}\n\n" for batch in batch_json.pop(0))
        await route.fulfill(body="".join(frames), content_type="text/event-stream")

    await tab.page.route("**/v1/pipeline-batches/**", lambda route: route.fulfill(json={"data": []}))
    await tab.page.route("**/v1/pipeline-batches/batch_x", lambda route: route.fulfill(json=batch_state("running", 0)))
    await tab.page.route("**/v1/pipeline-batches/batch_x/events", events)
    page = await tab.open("/?batch=batch_x")
    await expect(page.locator(".pace")).to_have_text("9,997 of 10,000 · 2.5 items/s · about 1 min 15 s left")
    await expect(page.get_by_text("An expert wakes up.")).to_be_visible()
    await tab.picture("batch-pace")
    seen.set()
    await ended(page, "incomplete")
    bar = page.get_by_role("progressbar")
    await expect(bar).to_have_attribute("aria-valuenow", "10000")
    end = await bar.evaluate("bar => bar.getBoundingClientRect().right")
    assert await bar.locator(".is-failed").evaluate("(piece, end) => end - piece.getBoundingClientRect().left", end) > 2
    await expect(page.get_by_text("The connection was lost")).to_be_hidden()
    assert batch_json == []


async def test_plan_of_an_unnamed_batch_can_be_saved(tab: Tab, local_stack: LocalStack) -> None:
    item = {"inputs": [{"name": "sign", "text": "Read me."}]}
    plan = [{"id": 1, "task": "text-classification", "arguments": {"text": {"input": "sign"}}}]
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        batch = (await http.post("/v1/pipeline-batches", json={"plan": plan, "items": [item]})).json()["batch_id"]
    page = await tab.open(f"/?batch={batch}")
    await ended(page)
    await page.get_by_role("button", name="Save this plan").click()
    await page.get_by_label("Name").fill("from-a-batch")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("from-a-batch")
    await expect(page.locator(".takes dt").first).to_have_text("sign")


async def test_items_of_a_long_batch_are_paged(tab: Tab, local_stack: LocalStack) -> None:
    files = [note(f"{n}.txt", f"It is {n}.") for n in range(120)]
    plan = [{"id": 1, "task": "text-classification", "arguments": {"text": {"input": "words"}}}]
    await save_pipeline(local_stack, "moods", plan=plan)
    page = await tab.open("/?pipeline=moods")
    await page.set_input_files("#parameter-1-files", files)
    await expect(page.get_by_role("list", name="Files for words").locator("li")).to_have_count(8)
    await expect(page.locator(".parameter")).to_contain_text("and 112 more")
    await page.get_by_role("button", name="Run on 120 files").click()
    await ended(page)
    items = page.get_by_role("list", name="Items").locator("li")
    await expect(items.first).to_contain_text("0.txt")
    await page.get_by_role("button", name="Later items").click()
    await expect(items.first).to_contain_text("50.txt")
    await page.get_by_role("button", name="Later items").click()
    await expect(items).to_have_count(20)
    await expect(page.get_by_role("button", name="Later items")).to_be_disabled()
    await page.get_by_role("button", name="Earlier items").click()
    await expect(items.first).to_contain_text("50.txt")


async def test_unknown_batch_is_reported(tab: Tab) -> None:
    tab.expected = ("404",)
    page = await tab.open("/?batch=nowhere")
    await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such batch")


async def test_batch_with_markup_in_every_field_is_shown_as_text(tab: Tab) -> None:
    failure = {"reason": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}
    outputs = {HOSTILE: HOSTILE, "__proto__": {"artifact": {"sha256": f"../{IMG}", "name": HOSTILE}}, "a": [HOSTILE]}
    item = {"index": 1, "name": HOSTILE, "state": HOSTILE, "run_id": HOSTILE, "outputs": outputs}
    port = {"name": HOSTILE, "modality": HOSTILE}
    batch_json = {
        "batch_id": HOSTILE,
        "state": "failed",
        "spec": {"request": HOSTILE},
        "pipeline": {"inputs": [port], "outputs": [port], "plan": [{"id": 1, "task": HOSTILE, "source": HOSTILE}]},
        "counts": {"total": 3, "completed": 1, "failed": 2},
        "failure": failure,
        "waiting_for": HOSTILE,
    }
    summary = {
        "seconds": {"median": 1, "p95": 1},
        "slowest": [{"index": 1, "name": HOSTILE, "seconds": 1}],
        "errors": [{**failure, "count": 2, "names": [HOSTILE]}],
    }
    answers = {
        "/pipeline-batches?": {"data": [batch_json]},
        "/items": {"data": [item, {**item, "index": 2, "outputs": {}, "failure": failure}]},
        "/summary": summary,
        "/pipeline-batches/": batch_json,
    }

    async def answer(route: Route) -> None:
        await route.fulfill(body=next(json.dumps(body) for part, body in answers.items() if part in route.request.url))

    await tab.page.route("**/v1/pipeline-batches**", answer)
    page = await tab.open("/?batches")
    await expect(page.locator(".entry")).to_contain_text(IMG)
    await inert(page)
    await page.locator(".entry").click()
    for selector in ("h1", ".problem", ".item-name", ".item-result", ".errors p", ".times dt >> nth=2", ".task-name"):
        await expect(page.locator(selector).first).to_contain_text("<")
    await inert(page)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_batch_pages_are_accessible(browser: Browser, local_stack: LocalStack, colours: Any, width: int) -> None:
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=colours, reduced_motion="reduce"
    )
    tab = await open_tab(context, local_stack.url)
    page = await start_batch(
        tab, local_stack, picture("sign.png"), picture("a-bad-one.png", b"\x89PNG\r\n\x1a\n no picture")
    )
    await ended(page, "incomplete")
    await expect(page.locator(".errors")).to_be_visible()
    await expect(page.get_by_role("list", name="Items").locator("li")).to_have_count(2)
    await sound(page)
    await tab.picture(f"batch-{width}-{colours}", full_page=True)
    await page.goto(f"{local_stack.url}/?batches")
    await expect(page.locator(".entry").first).to_be_visible()
    await sound(page)
    await context.close()
    tab.check()
