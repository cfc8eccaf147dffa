"""The body of POST /v1/batches: one JSON document, or lines of it in any number."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from gateway.json_decoder import decode
from gateway.json_text import QUICK_BYTES, loads, refuse
from gateway.pipelines.batch_items import Sent, read
from gateway.run_request import JSON_BYTES, limited, too_large
from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from services.common.errors import InvalidRequest

PAGE_ITEMS, PAGE_INPUTS, PAGE_BYTES = 100, 1_000, 1_000_000
"""Most of what is taken in at a time: a page is over once it has one of them."""

MOST_ITEMS = 1_000_000

SOURCES = frozenset({"pipeline", "plan", "request", "run_id"})

_JSON = "application/json"
_LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})


@dataclass(frozen=True)
class Wished:
    """What somebody wants done with what."""

    spec: BatchSpec
    pages: AsyncIterator[list[Sent]]
    """They are read as they are asked for."""


async def wished(request: Request) -> Wished:
    """What the body says; of lines, the first is read.

    Raises:
        InvalidRequest: CONTENT_TYPE, TOO_LARGE, or what is wrong and where. Reading the pages does so, too.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _JSON:
        return await _document(await limited(request.stream(), JSON_BYTES, "the body"))
    if kind in _LINES:
        return await _lines(request.stream())
    raise InvalidRequest(
        f"the body is {kind[:100] or 'of no stated type'}",
        reason="CONTENT_TYPE",
        remedy="send application/json, or application/x-ndjson: a line that says what to run, then a line an item",
    )


async def _document(content: bytes) -> Wished:
    document = await _loaded(content, "")
    items = document.pop("items", None) if isinstance(document, dict) else None
    if not isinstance(items, list | None):
        refuse("items", "is not a list", remedy='send for instance [{"name": "a.png", "inputs": […]}]')
    return Wished(_spec(document, ""), paged(_listed(items or [])))


async def _lines(body: AsyncIterable[bytes]) -> Wished:
    lines = numbered(body)
    async for number, line in lines:
        where = f"line {number}"
        return Wished(_spec(await _loaded(line, where), where), paged(_read(lines)))
    raise InvalidRequest(
        "the body is empty", reason="EMPTY", remedy="send a line that says what to run, then a line an item"
    )


def _spec(document: Any, where: str) -> BatchSpec:
    one_source(document, SOURCES)
    return decode(BatchSpec, document, where)


def one_source(document: Any, sources: Collection[str]) -> None:
    """Sees that it is said once what to run.

    Raises:
        InvalidRequest: it is said twice.
    """
    given = sorted(key for key in sources if isinstance(document, dict) and document.get(key) is not None)
    if len(given) > 1:
        raise InvalidRequest(f"there is a {given[0]} and a {given[1]}", remedy="send one of them", port=given[0])


async def _read(lines: AsyncIterator[tuple[int, bytes]]) -> AsyncIterator[tuple[Sent, int]]:
    async for number, line in lines:
        where = f"line {number}"
        yield read(await _loaded(line, where), where), len(line)


async def _listed(items: list[Any]) -> AsyncIterator[tuple[Sent, int]]:
    for index, document in enumerate(items):
        yield read(document, f"items[{index}]"), 0


async def paged(sent: AsyncIterator[tuple[Sent, int]]) -> AsyncIterator[list[Sent]]:
    """Items in pages, between which others are served.

    Args:
        sent: the items, with their lengths in bytes.

    Raises:
        InvalidRequest: TOO_LARGE, there are too many.
    """
    page, inputs, size, total = list[Sent](), 0, 0, 0
    async for item, length in sent:
        total += 1
        if total > MOST_ITEMS:
            message = f"a batch has {MOST_ITEMS} items at most"
            raise InvalidRequest(message, reason="TOO_LARGE", remedy="split it into several", port="items")
        page.append(item)
        inputs, size = inputs + len(item.item.inputs), size + length
        if len(page) >= PAGE_ITEMS or inputs >= PAGE_INPUTS or size >= PAGE_BYTES:
            yield page
            await asyncio.sleep(0)
            page, inputs, size = [], 0, 0
    if page:
        yield page


async def numbered(body: AsyncIterable[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of a body that are not blank, with their numbers from 1.

    Raises:
        InvalidRequest: TOO_LARGE, a line is.
    """
    number, begun = 1, bytearray()
    async for chunk in body:
        first, *others = chunk.split(b"\n")
        begun += first
        for following in others:
            if begun.strip():
                yield number, bytes(begun)
            number, begun = number + 1, bytearray(following)
        if len(begun) > JSON_BYTES:
            raise too_large(f"line {number}", JSON_BYTES)
    if begun.strip():
        yield number, bytes(begun)


async def _loaded(content: bytes, where: str) -> Any:
    return loads(content, where) if len(content) < QUICK_BYTES else await asyncio.to_thread(loads, content, where)
