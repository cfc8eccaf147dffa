"""Accessibility of the web page: keyboard, screen reader, phone, dark colours, and access with a key."""

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import ROOT, LocalStack, run_cli, start_local_stack
from tests.system.test_page import choose_sample

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

HAPPY = "Does this sound happy?"


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def shown(page: Page) -> None:
    """A completed run with an image, with one task's details open."""
    await choose_sample(page, "How many people")
    await expect(page.locator(".state .badge")).to_have_text("completed", timeout=60_000)
    await page.locator("#task-1 summary").first.click()
    await expect(page.locator(".stage .frame")).to_have_count(1)


UNNAMED = """() => {
    const named = element => element.ariaLabel || element.innerText?.trim() || element.labels?.[0]?.textContent.trim()
        || element.querySelector("img[alt]:not([alt=''])") || element.getAttribute("aria-labelledby");
    const wanted = "a, button, input, textarea, select, summary, dialog, nav, audio, [role=button], [role=group]";
    const seen = element => element.checkVisibility() && !element.closest("[aria-hidden=true]");
    const silent = [...document.querySelectorAll(wanted)].filter(element => seen(element) && !named(element));
    const blind = [...document.querySelectorAll("img:not([alt])")];
    return [...silent, ...blind].map(element => element.outerHTML.slice(0, 200));
}"""
"""Controls without an accessible name."""

PALE = """() => {
    const brush = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
        .getContext("2d", { willReadFrequently: true });
    const layered = (...colours) => {
        brush.clearRect(0, 0, 1, 1);
        for (const colour of colours) { brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1); }
        return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = colour => colour.map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = element => {
        const found = [];
        for (let at = element; at; at = at.parentElement) found.unshift(getComputedStyle(at).backgroundColor);
        return ["white", ...found];
    };
    const contrast = element => {
        const ground = behind(element);
        const [one, other] = [light(layered(...ground)), light(layered(...ground, getComputedStyle(element).color))];
        return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    };
    const speaks = element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    return [...document.querySelectorAll("body *:not(svg *)")]
        .filter(element => speaks(element) && element.checkVisibility() && contrast(element) < 4.5)
        .map(element => `${contrast(element).toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
}"""
"""Text with a contrast below 4.5 to 1 (WCAG AA)."""

DOUBLED = """() => {
    const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
    return ids.length - new Set(ids).size;
}"""
HEADINGS = """() => {
    const found = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(each => each.closest("main"));
    return found.map(each => Number(each.tagName[1]));
}"""


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_controls_have_names_and_text_has_contrast(tab: Tab, colours: str) -> None:
    page = await tab.open()
    pressed = str(colours == "dark").lower()
    if await page.get_by_label("Dark colours").get_attribute("aria-pressed") != pressed:
        await page.get_by_label("Dark colours").click()
    assert await page.evaluate(UNNAMED) == []
    assert await page.evaluate(PALE) == []
    await shown(page)
    assert await page.evaluate(UNNAMED) == []
    assert await page.evaluate(PALE) == []
    assert await page.evaluate(DOUBLED) == 0
    levels = await page.evaluate(HEADINGS)
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels[:1] + levels, levels, strict=False))
    await tab.picture(colours, full_page=True)
    await page.reload()
    await expect(page.get_by_label("Dark colours")).to_have_attribute("aria-pressed", pressed)


async def test_page_works_with_keyboard_only(tab: Tab) -> None:
    page = await tab.open()
    await expect(page.get_by_label("Your request")).to_be_focused()
    await page.keyboard.type(f"{HAPPY} “We won on 3 June.” Find the dates in it, too")
    await page.keyboard.press("Enter")
    await expect(page.locator(".state .badge")).to_have_text("completed", timeout=60_000)
    tasks = page.locator(".graph .task")
    assert await tasks.count() > 1
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await tasks.first.evaluate("task => task === document.activeElement"):
            break
    await expect(tasks.first).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(tasks.nth(1)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#task-2")).to_have_attribute("open", "")
    await expect(page.locator("#task-2 > summary")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#task-2")).not_to_have_attribute("open", "")


async def test_progress_is_announced_to_screen_readers(tab: Tab) -> None:
    page = await tab.open()
    live_region = page.locator("#live")
    await page.evaluate("""() => {
        window.announcements = [];
        const live = document.getElementById("live");
        new MutationObserver(() => window.announcements.push(live.textContent)).observe(live, { childList: true });
    }""")
    await choose_sample(page, HAPPY)
    await expect(live_region).to_contain_text("The run has ended", timeout=60_000)
    *progress, end, _ = re.split(r"(?<=\.) ?", " ".join(await page.evaluate("window.announcements")))
    assert sorted(progress) == ["The plan has 1 task.", "text-classification: succeeded."]
    assert end == "The run has ended: completed."


async def test_reduced_motion_disables_animations(tab: Tab) -> None:
    page = await tab.open()
    await shown(page)
    assert await page.evaluate("document.getAnimations().length") == 0


async def test_page_fits_a_phone(browser: Browser, local_stack: LocalStack) -> None:
    context = await browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab = await open_tab(context, local_stack.url)
    page = await tab.open()
    await shown(page)
    assert await page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    await tab.picture("phone", full_page=True)
    await expect(page.get_by_role("navigation")).to_be_hidden()
    await page.get_by_role("button", name="Menu").tap()
    await expect(page.get_by_role("navigation")).to_be_visible()
    await page.get_by_role("link", name="New request").tap()
    await expect(page.get_by_label("Your request")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    await context.close()
    tab.check()


async def test_page_requires_a_key_if_authentication_is_on(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("locked")
    with start_local_stack(home, GATEWAY_AUTHENTICATION="keys") as locked:
        key = json.loads(run_cli(home, "keys", "create", "--name", "page", "--tenant", "acme", "--json").out)["key"]
        context = await browser.new_context()
        tab = await open_tab(context, locked.url)
        tab.expected = ("401",)
        page = await tab.open()
        await page.locator("#key-field").fill("not a key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("key was rejected")
        await page.locator("#key-field").fill(key)
        await page.keyboard.press("Enter")
        await shown(page)
        for picture in await page.locator(".made img").all():
            assert (await picture.get_attribute("src") or "").startswith("blob:")
        await page.get_by_role("button", name="Save this plan").click()
        await page.get_by_label("Name").fill("counter")
        await page.get_by_role("button", name="Save", exact=True).click()
        face = ROOT / "gateway" / "web" / "site" / "face.jpg"
        await page.set_input_files("#parameter-1-files", [face, face])
        await page.get_by_role("button", name="Run on 2 files").click()
        await expect(page.locator(".state .badge")).to_have_text("completed", timeout=60_000)
        async with page.expect_download() as saving:
            await page.get_by_role("link", name="JSON lines").click()
        assert (await (await saving.value).path()).read_text().count("\n") == 2
        assert key not in await page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        await page.get_by_role("button", name="Forget key").click()
        await expect(page.locator("#key-field")).to_be_visible()
        await context.close()
        tab.check()
