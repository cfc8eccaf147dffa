"""What the web page offers: available tasks, help for requests that cannot be planned, and unknown addresses."""

import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import LocalStack
from tests.system.test_page import SIGN, ended, submit_request

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

BROKEN = b"\x89PNG\r\n\x1a\n no picture"
CODE = re.compile(r"\b(?:[A-Z]{4,}_[A-Z_]+|UNPLANNABLE|INVALID|REQUEST|SKIPPED|ROUTE|UNAVAILABLE)\b|hugginggpt ")
"""Error codes, and commands of the command line."""
NAVIGATION = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def offered_examples(local_stack: LocalStack) -> list[str]:
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        tasks = (await http.get("/v1/tasks")).json()["data"]
    return [task["examples"][0] for task in tasks]


async def test_all_available_tasks_are_shown_with_an_example_before_the_first_request(
    tab: Tab, local_stack: LocalStack
) -> None:
    page = await tab.open()
    offers = page.get_by_role("list", name="Available tasks").get_by_role("listitem")
    examples = await offered_examples(local_stack)
    assert len(examples) > 5
    await expect(offers).to_have_text([re.compile(re.escape(example)) for example in examples])


async def test_chosen_example_becomes_the_request_and_files_stay(tab: Tab) -> None:
    page = await tab.open()
    await page.set_input_files("#pick-files", SIGN)
    await page.get_by_role("list", name="Available tasks").get_by_role("button", name="image-to-text").click()
    await expect(page.get_by_label("Your request")).to_have_value("Read the text in this image")
    await expect(page.get_by_label("Files to send")).to_contain_text("sign.png")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await ended(page)


async def test_unplannable_request_is_explained_once_with_the_available_tasks(
    tab: Tab, local_stack: LocalStack
) -> None:
    page = await tab.open()
    await submit_request(page, "Draw a cat on a bicycle", fresh=False)
    await ended(page, "failed")
    message = "“Draw a cat on a bicycle” calls for text-to-image, which no expert here offers."
    await expect(page.get_by_text(message)).to_have_count(1)
    await expect(page.get_by_role("heading", name="Plan")).to_be_hidden()
    assert CODE.findall(await page.locator("main").inner_text()) == []
    offers = page.get_by_role("list", name="Available tasks").get_by_role("listitem")
    await expect(offers).to_have_count(len(await offered_examples(local_stack)))
    await offers.get_by_role("button", name="text-classification").click()
    await expect(page.get_by_label("Your request")).to_have_value("Is this review positive or negative?")


async def test_conversation_without_a_chat_model_shows_the_available_tasks(tab: Tab) -> None:
    page = await tab.open()
    await submit_request(page, "Fly me to the moon", fresh=False)
    await ended(page)
    await expect(page.get_by_role("list", name="Available tasks")).to_be_visible()


async def test_failed_file_is_named_in_the_banner(tab: Tab, local_stack: LocalStack) -> None:
    plan = [
        {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "file1"}}},
        {"id": 2, "task": "text-classification", "arguments": {"text": "We won."}},
    ]
    form = {"spec": (None, json.dumps({"request": "Read it.", "plan": plan}).encode()), "file": ("broken.png", BROKEN)}
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        run = (await http.post("/v1/runs", files=form)).json()["run_id"]
    page = await tab.open(f"/?run={run}")
    await ended(page, "incomplete")
    await expect(page.get_by_role("alert")).to_contain_text("Some tasks failed: image-to-text on broken.png.")
    assert CODE.findall(await page.get_by_role("alert").inner_text()) == []


async def test_rejected_request_shows_no_code(tab: Tab) -> None:
    tab.expected = ("Failed to load resource",)
    page = await tab.open("/?run=run_nowhere")
    await expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
    assert CODE.findall(await page.locator("main").inner_text()) == []


@pytest.mark.parametrize("address", ["/nowhere", "/a/b?run=x"])
async def test_unknown_address_shows_the_page_with_a_way_back(tab: Tab, address: str) -> None:
    tab.expected = ("404",)
    page = await tab.open(address)
    await expect(page.get_by_role("heading", level=1)).to_have_text("This page does not exist")
    await page.get_by_role("link", name="Back to the start").click()
    await expect(page.get_by_label("Your request")).to_be_visible()
    await expect(page).to_have_url(f"{tab.url}/")


@pytest.mark.parametrize("address", ["/?run=nowhere", "/?batch=nowhere", "/?pipeline=nowhere"])
async def test_unknown_run_batch_or_pipeline_has_a_way_back(tab: Tab, address: str) -> None:
    tab.expected = ("404",)
    page = await tab.open(address)
    await page.get_by_role("link", name="Back to the start").click()
    await expect(page.get_by_label("Your request")).to_be_visible()


async def test_browser_gets_the_page_with_status_404_for_an_unknown_address(local_stack: LocalStack) -> None:
    async with httpx.AsyncClient(base_url=local_stack.url, headers=NAVIGATION) as http:
        reply = await http.get("/nowhere")
    assert reply.status_code == 404
    assert reply.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("address", ["/docs", "/healthz", "/openapi.json"])
async def test_known_address_is_served_to_a_browser(local_stack: LocalStack, address: str) -> None:
    async with httpx.AsyncClient(base_url=local_stack.url, headers=NAVIGATION) as http:
        assert (await http.get(address)).status_code == 200


@pytest.mark.parametrize(
    ("method", "address", "accept"),
    [("GET", "/nowhere", "*/*"), ("GET", "/v1/nowhere", NAVIGATION["accept"]), ("POST", "/nowhere", "text/html")],
)
async def test_api_client_gets_an_error_for_an_unknown_address(
    local_stack: LocalStack, method: str, address: str, accept: str
) -> None:
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        reply = await http.request(method, address, headers={"accept": accept})
    assert reply.status_code == 404
    assert reply.json()["code"] == "ROUTE"
