"""The web page in Chromium with a local stack: request, progress, reopening, cancellation."""

import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import ROOT, LocalStack

pytestmark = [CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

SIGN = ROOT / "tests" / "data" / "sign.png"
LENGTH = """async player => {
    await new Promise(done => { player.onloadedmetadata = done; player.load() });
    return player.duration;
}"""
"""Duration of an audio element, once the browser has loaded it."""
DEMO = "Read the text in this image aloud and tell me whether it sounds happy"


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def submit_request(page: Page, request: str, *, fresh: bool = True) -> None:
    if fresh:
        await page.get_by_text("Options").click()
        await page.get_by_label("Ignore cached results").check()
    await page.get_by_label("Your request").fill(request)
    await page.get_by_role("button", name="Ask", exact=True).click()


async def choose_sample(page: Page, text: str) -> None:
    """Sends one of the page's example requests."""
    await page.get_by_role("list", name="Examples").get_by_role("button", name=text).click()


async def ended(page: Page, state: str = "completed") -> None:
    await expect(page.locator(".state .badge")).to_have_text(state, timeout=60_000)


@contextmanager
def held(local_stack: LocalStack) -> Iterator[None]:
    """Pauses the expert's process, so that its calls stay active."""
    expert = local_stack.expert_pid("lite")
    os.kill(expert, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(expert, signal.SIGCONT)


async def test_request_with_file_shows_plan_answer_and_audio(tab: Tab) -> None:
    page = await tab.open()
    await page.set_input_files("#pick-files", SIGN)
    await expect(page.get_by_label("Files to send")).to_contain_text("sign.png")
    await submit_request(page, DEMO)
    await expect(page.locator(".graph .task")).to_have_count(3)
    await ended(page)
    await expect(page.locator(".graph .task.is-succeeded")).to_have_count(3)
    await expect(page.locator(".graph .end")).to_have_text([re.compile("sign.png"), re.compile("answer")])
    await expect(page.locator(".prose blockquote")).to_contain_text("We are so happy")
    await expect(page.locator(".prose strong").first).to_have_text("positive")
    assert await page.locator(".made audio").evaluate(LENGTH) > 1
    rows = page.locator(".timeline li")
    await expect(rows).to_have_count(5)
    assert await rows.locator(".span").count() == 5
    await tab.picture("light", full_page=True)


async def test_task_details_show_model_reason_inputs_and_outputs(tab: Tab) -> None:
    page = await tab.open()
    await choose_sample(page, "Read the text in this image")
    await ended(page)
    await page.get_by_role("button", name=re.compile("^text-classification .*task 3:")).click()
    details = page.locator("#task-3")
    await expect(details).to_have_attribute("open", "")
    await expect(details).to_contain_text("vaderSentiment, first of 2")
    await expect(details.locator("section", has_text="Attempts").locator("tbody tr")).to_have_count(1)
    await expect(details).to_contain_text("text of task 1, image-to-text")
    await expect(details.locator("section").last.locator("tbody tr")).to_have_count(3)
    await page.locator("#task-1 summary").first.click()
    await expect(page.locator("#task-1 .stage rect.frame")).to_have_count(3)


async def test_files_can_be_dropped_and_pasted(tab: Tab) -> None:
    page = await tab.open()
    for kind, name in (("drop", "dropped.txt"), ("paste", "pasted.txt")):
        await page.evaluate(
            """([kind, name]) => {
                const data = new DataTransfer();
                data.items.add(new File(["some words"], name, {type: "text/plain"}));
                const how = {bubbles: true, cancelable: true};
                const event = kind === "drop" ? new DragEvent("drop", {...how, dataTransfer: data})
                    : new ClipboardEvent("paste", {...how, clipboardData: data});
                document.body.dispatchEvent(event);
            }""",
            [kind, name],
        )
        await expect(page.get_by_label("Files to send")).to_contain_text(name)
    await page.get_by_role("button", name="Remove dropped.txt").click()
    await expect(page.get_by_label("Files to send").locator("li")).to_have_count(1)


async def test_reload_and_link_reopen_a_run(tab: Tab, local_stack: LocalStack) -> None:
    page = await tab.open()
    await choose_sample(page, "Does this sound happy?")
    await ended(page)
    address = page.url
    assert "?run=run_" in address
    await page.reload()
    await ended(page)
    await expect(page.locator(".prose")).to_contain_text("positive")
    await page.get_by_role("link", name="New request").click()
    await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
    await page.get_by_label("Earlier runs", exact=True).get_by_role("link", name="Does this sound happy?").first.click()
    await ended(page)
    assert page.url == address
    await page.go_back()
    await expect(page.get_by_label("Your request")).to_be_visible()


async def test_running_task_is_shown_and_can_be_cancelled(tab: Tab, local_stack: LocalStack) -> None:
    # The browser's clock is an hour ahead of the server's.
    await tab.page.add_init_script("const now = Date.now; Date.now = () => now() + 3_600_000;")
    page = await tab.open()
    with held(local_stack):
        await page.set_input_files("#pick-files", SIGN)
        await submit_request(page, "Read the text in this image")
        await expect(page.locator(".graph .task.is-running")).to_have_count(1)
        await expect(page.locator(".timeline .span.is-running").last).to_be_visible()
        await expect(page.locator(".state")).to_have_text(re.compile(r"running\d+\.\d+ s"))
        await page.get_by_role("button", name="Cancel").click()
        await ended(page, "cancelled")
    await expect(page.get_by_role("button", name="Ask again")).to_be_visible()


async def test_plan_waits_for_approval(tab: Tab) -> None:
    page = await tab.open()
    await page.get_by_text("Options").click()
    await page.get_by_label("Review the plan first").check()
    await submit_request(page, "Does this sound happy? “We won.”", fresh=False)
    await ended(page, "awaiting approval")
    await expect(page.locator(".graph .task.is-planned")).to_have_count(1)
    await page.get_by_role("button", name="Run this plan").click()
    await ended(page)


async def test_failure_is_shown_once_with_its_remedy(tab: Tab) -> None:
    page = await tab.open()
    await submit_request(page, "Draw a cat on a bicycle and tell me whether this sounds happy: “We won.”", fresh=False)
    await ended(page, "incomplete")
    await expect(page.get_by_role("alert")).to_contain_text(
        "Part of the request could not be done. The answer gives the reasons."
    )
    await expect(page.locator(".prose")).to_contain_text("text-to-image")
    await expect(page.locator(".prose li code").first).to_have_text("hugginggpt experts add ADDRESS")
    await expect(page.locator(".notes")).to_be_hidden()


async def test_follow_up_and_rerun(tab: Tab) -> None:
    page = await tab.open()
    await choose_sample(page, "Does this sound happy?")
    await ended(page)
    first = page.url
    await page.get_by_role("button", name="Ask a follow-up").click()
    await submit_request(page, "Find the dates in: “On 3 June 1843 it rained.”", fresh=False)
    await expect(page).not_to_have_url(first)
    await ended(page)
    second = page.url
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.get_by_label("Your request")).to_have_value(re.compile("Find the dates"))
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(second)
    await ended(page)
    await expect(page.locator(".prose")).to_contain_text("3 June 1843")


async def test_broken_stream_resumes_after_the_last_event(tab: Tab, local_stack: LocalStack) -> None:
    tab.expected = ("ERR_",)
    last_event_ids: list[str | None] = []

    async def broken(route: Route) -> None:
        last_event_ids.append(route.request.headers.get("last-event-id"))
        if len(last_event_ids) == 2:
            await route.abort()
            return
        reply = await route.fetch()
        body = await reply.text()
        cut = body[: body.index("\n\nid: 5") + 2] + "id: 5\nevent: half" if len(last_event_ids) == 1 else body
        await route.fulfill(response=reply, body=cut)

    result = local_stack.ask("Does this sound happy? “We won, and it was late.”")
    await tab.page.route("**/events", broken)
    page = await tab.open(f"/?run={result['run_id']}")
    await ended(page)
    await expect(page.locator(".prose p").first).to_contain_text("positive")
    assert last_event_ids == [None, "4", "4"]
    await expect(page.locator(".lost")).to_be_hidden()


async def test_rejected_request_shows_its_remedy(tab: Tab, local_stack: LocalStack) -> None:
    tab.expected = ("Failed to load resource",)
    page = await tab.open()
    await page.set_input_files(
        "#pick-files", {"name": "photo.png", "mimeType": "image/png", "buffer": b"%PDF-1.4\n%%EOF"}
    )
    await submit_request(page, "What is this?", fresh=False)
    form = [("spec", (None, b'{"request": "x"}')), ("file", ("photo.png", b"%PDF-1.4\n%%EOF"))]
    async with httpx.AsyncClient() as http:
        problem = (await http.post(f"{local_stack.url}/v1/runs", files=form)).json()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text(problem["detail"])
    await expect(alert).to_contain_text(problem["remedy"][1:])
    await expect(page.get_by_label("Your request")).to_have_value("What is this?")
    await tab.open("/?run=run_nowhere")
    await expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()


async def test_page_is_revalidated_and_its_assets_are_cached(local_stack: LocalStack) -> None:
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        page = await http.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        known = await http.get("/", headers={"if-none-match": page.headers["etag"]})
        assert known.status_code == 304
        assert known.content == b""
        parts = re.findall(r'"(/web/[^"]+)"', page.text)
        assert len(parts) > 20
        for part in parts:
            reply = await http.get(part)
            assert reply.status_code == 200, part
            assert "immutable" in reply.headers["cache-control"], part
        assert (await http.head("/")).headers["content-length"] == str(len(page.content))
        assert (await http.get("/web/another/main.js")).status_code == 404
        assert (await http.post("/")).status_code == 405
