"""Pipelines on the web page: save a plan, draw it, list it, and run it on files and text."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import ROOT, LocalStack
from tests.system.test_page import DEMO, SIGN, choose_sample, ended, submit_request
from tests.system.test_page_reading import DOUBLED, HEADINGS, PALE, UNNAMED
from tests.system.test_page_safety import HOSTILE, IMG, inert

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

SUMMARIZE = [
    {"id": 1, "task": "summarization", "arguments": {"text": {"input": "words"}}},
    {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}},
]
PAIRS = [
    {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "one"}}},
    {"id": 2, "task": "image-to-text", "arguments": {"image": {"input": "other"}}},
]
TEXT = "Ada wrote the first program in 1843. It computed numbers. The machine it was written for was never built."


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def save_pipeline(local_stack: LocalStack, name: str, **saved: Any) -> None:
    async with httpx.AsyncClient(base_url=local_stack.url, timeout=30) as http:
        reply = await http.put(f"/v1/pipelines/{name}", json=saved)
        assert reply.is_success, reply.text


async def test_plan_of_a_run_can_be_saved_drawn_and_listed(tab: Tab) -> None:
    page = await tab.open()
    await page.set_input_files("#pick-files", SIGN)
    await submit_request(page, DEMO, fresh=False)
    await ended(page)
    await page.get_by_role("button", name="Save this plan").click()
    name = page.get_by_label("Name")
    await expect(name).to_be_focused()
    await expect(name).to_have_value("read-the-text-in-this-image")
    await expect(page.get_by_label("Description")).to_have_value(DEMO)
    await name.fill("sign-reader")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("sign-reader")
    await expect(page).to_have_url(f"{tab.url}/?pipeline=sign-reader")
    await expect(page.locator(".graph .task")).to_have_count(3)
    await expect(page.locator(".graph .end")).to_have_text([re.compile("file1"), re.compile("3 results")])
    await page.set_viewport_size({"width": 1200, "height": 900})
    assert await page.locator(".graph").evaluate("graph => graph.scrollWidth <= graph.clientWidth")
    await expect(page.locator(".graph .task").first).to_contain_text("any model")
    await page.get_by_role("button", name=re.compile("^text-to-speech .*task 2:")).click()
    await expect(page.locator("#task-2")).to_contain_text("text of task 1, image-to-text")
    await expect(page.locator("#task-1")).not_to_contain_text("from your request")
    await page.get_by_role("navigation").get_by_role("link", name="Pipelines").click()
    entry = page.get_by_role("list", name="Pipelines").get_by_role("link", name="sign-reader")
    await expect(entry).to_contain_text("an image → image-to-text · text-to-speech · text-classification")
    await entry.click()
    await page.get_by_role("link", name="a run", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(DEMO)


async def test_pinning_models_creates_a_version(tab: Tab) -> None:
    page = await tab.open()
    await choose_sample(page, "Summarize this letter")
    await ended(page)
    for pinned in (False, True):
        run = page.url
        await page.get_by_role("button", name="Save this plan").click()
        await page.get_by_label("Name").fill("pinned-plan")
        await page.get_by_label("Pin the models").set_checked(pinned)
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_text(f"Version {1 + pinned}, saved just now")).to_be_visible()
        if not pinned:
            await page.goto(run)
            await ended(page)
    assert await page.get_by_text("any model").count() == 0
    await expect(page.locator(".task-details .badge").first).to_have_text("pinned")
    await page.locator(".versions").get_by_role("link", name="1").click()
    await expect(page.get_by_text("Version 1, saved just now")).to_be_visible()
    await expect(page.locator(".graph .task").first).to_contain_text("any model")


async def test_save_error_is_shown_in_the_dialog(tab: Tab, local_stack: LocalStack) -> None:
    tab.expected = ("400",)
    result = local_stack.ask("Does this sound happy? “We won.”")
    page = await tab.open(f"/?run={result['run_id']}")
    await page.get_by_role("button", name="Save this plan").click()
    await sound(page)
    await page.get_by_label("Name").fill("Not a name")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog")).to_be_visible()
    assert not await page.get_by_label("Name").evaluate("field => field.validity.valid")
    await page.get_by_label("Name").evaluate("field => field.removeAttribute('pattern')")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("dialog").get_by_role("alert")).to_contain_text("is not a valid name of a pipeline")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)


async def test_one_file_starts_a_run_without_planning(tab: Tab, local_stack: LocalStack) -> None:
    plan = [{"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "sign"}}}]
    await save_pipeline(local_stack, "reader", plan=plan, description="Reads signs.")
    page = await tab.open("/?pipeline=reader")
    await page.get_by_role("button", name="Run pipeline").click()
    await expect(page.get_by_role("alert")).to_contain_text("sign is missing.")
    await page.set_input_files("#parameter-1-files", SIGN)
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.get_by_role("button", name="Run pipeline").click()
    await ended(page)
    await expect(page.get_by_role("heading", level=1)).to_have_text("reader")
    await expect(page.locator(".page-header")).to_contain_text("A run with pipeline reader, version 1")
    await expect(page.locator(".graph .end").first).to_contain_text("sign.png")
    await expect(page.locator(".prose")).to_contain_text("We are so happy")
    await expect(page.get_by_role("list", name="Earlier runs").get_by_role("link").first).to_contain_text("reader")
    await page.get_by_role("link", name="Run on other files").click()
    await expect(page).to_have_url(f"{tab.url}/?pipeline=reader&version=1")


async def test_text_starts_a_run_and_text_files_replace_it(tab: Tab, local_stack: LocalStack) -> None:
    await save_pipeline(local_stack, "teller", plan=SUMMARIZE)
    page = await tab.open("/?pipeline=teller")
    await page.get_by_label("words", exact=True).fill(TEXT)
    await page.get_by_label("Process only on this deployment").check()
    await page.get_by_role("button", name="Run pipeline").click()
    await ended(page)
    run = page.url.split("run=")[1]
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        spec = (await http.get(f"/v1/runs/{run}")).json()["spec"]
    assert spec["pipeline"] == {"name": "teller", "version": 1}
    assert spec["inputs"] == [{"name": "words", "text": TEXT}]
    await page.go_back()
    await page.set_input_files(
        "#parameter-1-files", {"name": "letter.txt", "mimeType": "text/plain", "buffer": TEXT.encode()}
    )
    await expect(page.get_by_label("words", exact=True)).to_be_hidden()
    await page.get_by_role("button", name="Run pipeline").click()
    await expect(page.locator(".page-header .chip")).to_contain_text("letter.txt")
    await ended(page)


async def test_unequal_file_counts_per_parameter_are_rejected(tab: Tab, local_stack: LocalStack) -> None:
    await save_pipeline(local_stack, "pairs", plan=PAIRS)
    page = await tab.open("/?pipeline=pairs")
    await page.set_input_files("#parameter-1-files", [SIGN] * 3)
    await page.set_input_files("#parameter-2-files", [SIGN] * 2)
    await page.get_by_role("button", name="Run on 3 files").click()
    await expect(page.get_by_role("alert")).to_contain_text("other has 2 files, another parameter 3.")
    await page.get_by_role("button", name="Remove sign.png").last.click()
    await expect(page.get_by_role("list", name="Files for other").locator("li")).to_have_count(1)


async def test_files_can_be_dropped_on_parameters(tab: Tab, local_stack: LocalStack) -> None:
    await save_pipeline(local_stack, "pairs", plan=PAIRS, policy="local")
    page = await tab.open("/?pipeline=pairs")
    await expect(page.get_by_text("Its data never leaves this deployment.")).to_be_visible()
    local = page.get_by_label("Process only on this deployment")
    await expect(local).to_be_checked()
    await expect(local).to_be_disabled()
    for selector, there in ((".parameter >> nth=1", 1), ("h1", 1)):
        await page.locator(selector).evaluate("""place => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["some words"], "dropped.txt", {type: "text/plain"}));
            place.dispatchEvent(new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer}));
        }""")
        await expect(page.locator(".parameter .chip")).to_have_count(there)
    await expect(page.get_by_role("list", name="Files for other")).to_contain_text("dropped.txt")


async def test_unknown_pipeline_is_reported(tab: Tab) -> None:
    tab.expected = ("404",)
    page = await tab.open("/?pipeline=nowhere")
    await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such pipeline")


async def test_pipeline_with_markup_in_every_field_is_shown_as_text(tab: Tab) -> None:
    task = {"id": 1, "task": HOSTILE, "source": HOSTILE, "pinned_model": HOSTILE, "pinned_revision": HOSTILE}
    port = {"name": HOSTILE, "modality": HOSTILE, "description": HOSTILE, "required": True}
    result = {
        "name": HOSTILE,
        "version": HOSTILE,
        "description": HOSTILE,
        "source_run_id": HOSTILE,
        "inputs": [port, {**port, "name": "__proto__"}],
        "outputs": [port],
        "plan": [{**task, "arguments": {HOSTILE: {"input": HOSTILE}}, "parameters": {HOSTILE: HOSTILE}}],
        "create_time": HOSTILE,
    }
    listed = json.dumps({"data": [result, {**result, "version": 2}]})
    answers = {"/v1/pipelines?": listed, "/versions": listed, "/v1/pipelines/": json.dumps(result)}

    async def answer(route: Route) -> None:
        await route.fulfill(body=next(body for part, body in answers.items() if part in route.request.url))

    await tab.page.route("**/v1/pipelines**", answer)
    page = await tab.open("/?pipelines")
    await expect(page.locator(".entry").first).to_contain_text(IMG)
    await inert(page)
    await page.locator(".entry").first.click()
    await page.locator("#task-1 > summary").click()
    for selector in ("h1", ".lead", ".versions", ".parameter-name", ".task-name", ".takes dt"):
        await expect(page.locator(selector).first).to_contain_text("<")
    await inert(page)


async def sound(page: Page) -> None:
    """Checks names of controls, text contrast, and unique ids."""
    assert await page.evaluate(UNNAMED) == []
    assert await page.evaluate(PALE) == []
    assert await page.evaluate(DOUBLED) == 0
    levels = await page.evaluate(HEADINGS)
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels[:1] + levels, levels, strict=False))
    width, window_width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= window_width


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_pipeline_pages_are_accessible(
    browser: Browser, local_stack: LocalStack, colours: Any, width: int
) -> None:
    await save_pipeline(local_stack, "letters", plan=SUMMARIZE, description="Summarizes a letter and reads that aloud.")
    context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours)
    tab = await open_tab(context, local_stack.url)
    page = await tab.open("/?pipelines")
    await expect(page.locator(".entry").first).to_be_visible()
    await sound(page)
    await page.get_by_role("list", name="Pipelines").get_by_role("link", name="letters").click()
    await page.set_input_files("#parameter-1-files", [ROOT / "README.md", ROOT / "pyproject.toml"])
    await page.locator("#task-2 > summary").click()
    await sound(page)
    await tab.picture(f"pipeline-{width}-{colours}", full_page=True)
    await page.get_by_role("button", name="Menu").click() if width < 900 else None
    await expect(page.get_by_role("link", name="Pipelines", exact=True)).to_have_attribute("aria-current", "page")
    await context.close()
    tab.check()
