"""Content of models, file names and requests is shown as text: no markup, no script, no foreign address."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import CHROMIUM, Tab, open_tab
from tests.system.conftest import LocalStack

pytestmark = [pytest.mark.slow, CHROMIUM, pytest.mark.asyncio(loop_scope="session")]

IMG = "<img src=x onerror=alert(1)>"
SVG = "<svg/onload=alert(2)>"
SCRIPT = "</title><script>alert(3)</script>"
HOSTILE = f'{IMG}{SVG}{SCRIPT}"><iframe src=javascript:alert(4)>'
SHA = "a" * 64

OUTSIDE = "https://elsewhere.example/x.png"
MARKDOWN = f"""# {HOSTILE}

{HOSTILE} **{HOSTILE}** `{HOSTILE}`

[a link](javascript:alert(5)) [away]({OUTSIDE}) ![picture]({OUTSIDE}) [[nested](javascript:alert(6))]({OUTSIDE})
<a href="javascript:alert(7)">html</a> [ours](/v1/artifacts/{"b" * 64}) ![data](data:image/svg+xml,{SVG})

| {IMG} | b |
|---|---|
| {SVG} | [x](data:text/html,{SCRIPT}) |

> {HOSTILE}

- {HOSTILE}

```html
{HOSTILE}
```
"""


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser, local_stack: LocalStack) -> AsyncIterator[Tab]:
    context = await browser.new_context()
    tab = await open_tab(context, local_stack.url)
    yield tab
    await context.close()
    tab.check()


async def inert(page: Page) -> None:
    """Checks that the page contains no foreign elements, scripts or addresses."""
    assert await page.evaluate("[...document.querySelectorAll('iframe, main script, object, embed, base')].length") == 0
    links = "[...document.querySelectorAll('[href], [src]')].map(each => each.href?.baseVal ?? each.href ?? each.src)"
    for address in await page.evaluate(links):
        assert address.startswith((page.url.split("?")[0], "blob:")), address
    attributes = "[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())"
    assert not [name for name in await page.evaluate(attributes) if name.startswith("on")]


async def test_markup_in_request_file_name_and_result_is_shown_as_text(tab: Tab, local_stack: LocalStack) -> None:
    text = f"Ada paid £120 to {IMG} on 3 June 1843. {HOSTILE}"
    plan = [{"id": 1, "task": "summarization", "arguments": {"text": {"input": "file1"}}}]
    spec = {"request": f"Summarize {HOSTILE}", "plan": plan}
    form = [("spec", (None, json.dumps(spec))), ("file", (f"{IMG}.txt", text))]
    async with httpx.AsyncClient() as http:
        run = (await http.post(f"{local_stack.url}/v1/runs", files=form, headers={"prefer": "wait=30"})).json()
    assert run["state"] == "completed", run
    page = await tab.open(f"/?run={run['run_id']}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Summarize {HOSTILE}")
    await page.locator(".graph .task").click()
    await expect(page.locator("#task-1 .text").last).to_contain_text(IMG)
    await expect(page.locator(".prose")).to_contain_text(IMG)
    await expect(page.locator(".page-header .chip")).to_contain_text("onerror")
    await inert(page)


def hostile_events(run: str) -> list[dict[str, Any]]:
    """Events with markup in every field."""
    artifact = {"sha256": f"../../{SHA}", "media_type": f"image/png{IMG}", "size_bytes": 1, "name": f"{IMG}.png"}
    by = {"model_id": HOSTILE, "revision": HOSTILE, "expert": HOSTILE, "role": HOSTILE, "reason": HOSTILE, "score": 1}
    failure = {"reason": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}
    outputs = {
        HOSTILE: HOSTILE,
        "image": {"artifact": artifact},
        "objects": [{"label": HOSTILE, "score": 0.5, "box": {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}, HOSTILE: 1}],
        "__proto__": {"constructor": {"polluted": [[HOSTILE]]}},
    }
    task = {"id": 1, "task": HOSTILE, "arguments": {HOSTILE: HOSTILE, "image": {"input": "file1"}}, "source": HOSTILE}
    inputs = [{"name": "file1", "artifact": artifact}, {"name": HOSTILE, "text": HOSTILE}]
    happened: list[dict[str, Any]] = [
        {"run_accepted": {"spec": {"request": HOSTILE, "inputs": inputs}}},
        {"plan_note": {"kind": HOSTILE, "text": HOSTILE, "span": HOSTILE}},
        {"task_id": 1, "task_planned": {"task": {**task, "parameters": {HOSTILE: HOSTILE}}}},
        {"plan_completed": {"decision": {"controller": HOSTILE, "fell_back_because": HOSTILE}, "tasks": 1}},
        {"task_id": 1, "task_selected": {"candidates": [by, by], "decision": {"controller": "llm", "reason": HOSTILE}}},
        {"task_id": 1, "task_waiting": {"expert": HOSTILE, "reason": HOSTILE}},
        {"task_id": 1, "attempt": 1, "task_started": {"by": by}},
        {"task_id": 1, "attempt": 1, "task_progress": {"fraction": 0.5, "message": HOSTILE}},
        {"task_id": 1, "attempt": 1, "attempt_failed": {"failure": failure, "by": by, "next": HOSTILE}},
        {"task_id": 1, "task_ended": {"state": "succeeded", "result": {"by": by, "outputs": outputs}}},
        {"answer_chunk": {"text": MARKDOWN}},
        {"answer_chunk": {"decision": {"controller": HOSTILE, "reason": HOSTILE}}},
        {"run_ended": {"state": "incomplete", "failure": failure}},
    ]
    numbered = enumerate(happened, start=1)
    return [{"run_id": run, "sequence": at, "time": f"2030-01-01T00:00:{at:02}Z", **event} for at, event in numbered]


async def test_run_with_markup_in_every_field_is_shown_as_text(tab: Tab) -> None:
    tab.expected = ("Failed to load resource",)
    frames = "".join(f"id: {event['sequence']}\ndata: {json.dumps(event)}\n\n" for event in hostile_events("run_x"))
    await tab.page.route(
        "**/v1/runs/run_x/events", lambda route: route.fulfill(body=frames, content_type="text/event-stream")
    )
    page = await tab.open("/?run=run_x")
    await expect(page.locator(".state .badge")).to_have_text("incomplete")
    await page.locator(".graph .task").click()
    await expect(page.locator("#task-1")).to_have_attribute("open", "")
    for selector in (
        "h1",
        ".plan .notes",
        ".task-name",
        "#task-1 .part",
        ".prose p",
        ".problem",
        ".prose pre",
        ".prose td",
    ):
        await expect(page.locator(selector).first).to_contain_text("<")
    await expect(page.locator(".prose")).to_contain_text("a link (javascript:alert(5)")
    await expect(page.locator(".prose")).to_contain_text(f"away ({OUTSIDE})")
    assert await page.locator(".prose a[href], .prose img").count() == 0
    assert await page.evaluate("({}).polluted === undefined && ({}).constructor === Object")
    await inert(page)


CASES = {
    "**bold** and *slanted*": "<p><strong>bold</strong> and <em>slanted</em></p>",
    "snake_case_name stays": "<p>snake_case_name stays</p>",
    r"\[not\] \<b> 2\*3": "<p>[not] &lt;b&gt; 2*3</p>",
    "# One\ntext": "<h3>One</h3><p>text</p>",
    "1. a\n2. b\n   - c": "<ol><li>a</li><li>b<ul><li>c</li></ul></li></ol>",
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "`<b>`": "<p><code>&lt;b&gt;</code></p>",
    "```\n**a**\n\nb": '<pre tabindex="0"><code>**a**\n\nb</code></pre>',
    "a\nb": "<p>a<br>b</p>",
    "**open": "<p>**open</p>",
    "[x](javascript:1)": "<p>x (javascript:1)</p>",
    "---": "<hr>",
}


async def test_markdown_is_rendered_as_elements(tab: Tab) -> None:
    page = await tab.open()
    assert {text: await page.evaluate(RENDERED, text) for text in CASES} == CASES


RENDERED = """async text => {
    const main = document.querySelector("script[type=module]").src;
    const { blocks } = await import(new URL("markdown.js", main).href);
    const known = { link: () => null, picture: () => null, words: words => [document.createTextNode(words)] };
    return blocks(text).map(({ make }) => make(known).outerHTML).join("");
}"""

TIMED = f"""async text => {{
    const began = performance.now();
    await ({RENDERED})(text);
    return performance.now() - began;
}}"""


PIECES = ("[", "*a ", "`", "> ", "- ", "![](", "|", "**", "\\", "<", "(", "__a", "~~", "#")


async def test_pathological_markdown_renders_quickly(tab: Tab) -> None:
    page = await tab.open()
    durations = {piece: await page.evaluate(TIMED, piece * (100_000 // len(piece))) for piece in PIECES}
    assert {piece: milliseconds for piece, milliseconds in durations.items() if milliseconds > 3000} == {}
