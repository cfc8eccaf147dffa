"""Runs, pipelines and batches on the web page: delete, start a batch from a request, and save all output files."""

import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import LocalStack
from tests.system.test_page import SIGN, ended
from tests.system.test_page_batches import note, picture
from tests.system.test_page_pipelines import save_pipeline

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

SPEAK = [{"id": 1, "task": "text-to-speech", "arguments": {"text": {"input": "words"}}}]
SKETCH_AND_SPEAK = [
    {
        "id": 1,
        "task": "image-to-image",
        "arguments": {"image": {"input": "photo"}, "instruction": "Turn it into a sketch"},
    },
    {"id": 2, "task": "text-to-speech", "arguments": {"text": "Done."}},
    {"id": 3, "task": "text-to-speech", "arguments": {"text": "Done again."}},
]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def delete(page: Page) -> None:
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()


async def status(local_stack: LocalStack, path: str) -> int:
    async with httpx.AsyncClient(base_url=local_stack.url) as http:
        return (await http.get(path)).status_code


async def saved_archive(page: Page, button: str, folder: Path) -> zipfile.ZipFile:
    async with page.expect_download() as saving:
        await page.get_by_role("button", name=button).click()
    download = await saving.value
    await download.save_as(folder / download.suggested_filename)
    return zipfile.ZipFile(folder / download.suggested_filename)


async def test_deleted_run_is_gone_and_the_page_returns_to_the_start(tab: Tab, local_stack: LocalStack) -> None:
    run = local_stack.ask("Does this sound happy? “We won, so delete this.”")["run_id"]
    page = await tab.open(f"/?run={run}")
    await ended(page)
    await delete(page)
    await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
    await expect(page.get_by_role("list", name="Earlier runs")).not_to_contain_text("so delete this")
    assert await status(local_stack, f"/v1/runs/{run}") == 404


async def test_cancelled_dialog_deletes_nothing(tab: Tab, local_stack: LocalStack) -> None:
    run = local_stack.ask("Does this sound happy? “We won.”")["run_id"]
    page = await tab.open(f"/?run={run}")
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await status(local_stack, f"/v1/runs/{run}") == 200


async def test_deleted_pipeline_is_gone_with_all_versions(tab: Tab, local_stack: LocalStack) -> None:
    await save_pipeline(local_stack, "short-lived", plan=SPEAK)
    await save_pipeline(local_stack, "short-lived", plan=SKETCH_AND_SPEAK)
    page = await tab.open("/?pipeline=short-lived")
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_role("dialog")).to_contain_text("All 2 versions are deleted.")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Pipelines")
    assert await status(local_stack, "/v1/pipelines/short-lived") == 404


async def test_batch_starts_from_a_request_and_can_be_deleted(tab: Tab, local_stack: LocalStack) -> None:
    page = await tab.open()
    await page.set_input_files("#pick-files", [note("good.txt", "We won."), note("bad.txt", "We lost it all.")])
    await page.get_by_label("Run once per file").check()
    await page.get_by_label("Your request").fill("Does this sound happy?")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page).to_have_url(re.compile(r"\?batch=batch_"))
    await ended(page)
    batch = page.url.split("batch=")[1]
    await expect(page.locator(".page-header")).to_contain_text("A batch of 2 items")
    items = page.get_by_role("list", name="Items").locator("li")
    await expect(items).to_have_text([re.compile("good.txt.*positive"), re.compile("bad.txt.*negative")])
    await delete(page)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Batches")
    assert await status(local_stack, f"/v1/pipeline-batches/{batch}") == 404


async def test_rejected_file_fails_its_item_of_a_batch_from_a_request(tab: Tab) -> None:
    tab.expected = ("400",)
    page = await tab.open()
    await page.set_input_files("#pick-files", [picture("sign.png"), picture("letter.png", b"%PDF-1.4\n%%EOF")])
    await page.get_by_label("Run once per file").check()
    await page.get_by_label("Your request").fill("Read the text in this image")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await ended(page, "incomplete")
    await expect(page.get_by_role("list", name="Items").locator("li").nth(1)).to_contain_text(
        "cannot accept letter.png"
    )


async def test_batch_choice_needs_several_files(tab: Tab) -> None:
    page = await tab.open()
    await expect(page.get_by_label("Run once per file")).to_be_hidden()
    await page.set_input_files("#pick-files", SIGN)
    await expect(page.get_by_label("Run once per file")).to_be_hidden()
    await page.set_input_files("#pick-files", SIGN)
    await expect(page.get_by_label("Run once per file")).to_be_visible()


async def test_output_files_of_a_batch_are_named_by_their_item(
    tab: Tab, local_stack: LocalStack, tmp_path: Path
) -> None:
    await save_pipeline(local_stack, "speaker", plan=SPEAK)
    page = await tab.open("/?pipeline=speaker")
    await page.set_input_files("#parameter-1-files", [note("hello.txt", "Hello."), note("bye.txt", "Goodbye.")])
    await page.get_by_role("button", name="Run on 2 files").click()
    await ended(page)
    names = ["0001-hello.audio.wav", "0002-bye.audio.wav"]
    await expect(page.locator(".item-result a")).to_have_text(names)
    archive = await saved_archive(page, "Save all files", tmp_path)
    assert archive.testzip() is None
    assert archive.namelist() == names
    assert archive.read(names[0])[:4] == b"RIFF"


async def test_all_output_files_of_a_run_are_saved_in_one_archive(
    tab: Tab, local_stack: LocalStack, tmp_path: Path
) -> None:
    await save_pipeline(local_stack, "sketcher", plan=SKETCH_AND_SPEAK)
    page = await tab.open("/?pipeline=sketcher")
    await page.set_input_files("#parameter-1-files", SIGN)
    await page.get_by_role("button", name="Run pipeline").click()
    await ended(page)
    archive = await saved_archive(page, "Save all", tmp_path)
    assert archive.testzip() is None
    assert len(set(archive.namelist())) == 3
    assert "speech.wav" in archive.namelist()
