"""Parses the body of POST /v1/pipeline-batches: one JSON document, or JSON lines of any number."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from gateway.core.batch_items import SubmittedItem, paginate, read_item
from gateway.http.json_body import JSON_BYTES, read_limited, too_large_error
from gateway.json_decoder import decode
from gateway.json_text import INLINE_PARSE_BYTES, loads, refuse
from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from services.common.errors import InvalidRequest

SOURCES = frozenset({"pipeline", "plan", "request", "run_id"})

_JSON = "application/json"
_LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})


@dataclass(frozen=True)
class BatchRequest:
    """A parsed request to start a batch."""

    spec: BatchSpec
    pages: AsyncIterator[list[SubmittedItem]]
    """Items in pages, parsed while the iterator is read."""


async def read_batch_request(request: Request) -> BatchRequest:
    """Reads the batch's spec; the items are parsed later, while `pages` is read.

    Raises:
        InvalidRequest: CONTENT_TYPE or TOO_LARGE, or the error names the invalid field. Reading `pages` raises it, too.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _JSON:
        return await _document(await read_limited(request.stream(), JSON_BYTES, "the body"))
    if kind in _LINES:
        return await _lines(request.stream())
    raise InvalidRequest(
        f"the content type {kind[:100]} is not supported" if kind else "the request states no content type",
        reason="CONTENT_TYPE",
        remedy="send application/json, or application/x-ndjson with the batch in the first line and an item per line",
    )


async def _document(content: bytes) -> BatchRequest:
    document = await _loaded(content, "")
    items = document.pop("items", None) if isinstance(document, dict) else None
    if not isinstance(items, list | None):
        refuse("items", "is not a list", remedy='send a list such as [{"name": "a.png", "inputs": […]}]')
    return BatchRequest(_spec(document, ""), paginate(_document_items(items or [])))


async def _lines(body: AsyncIterable[bytes]) -> BatchRequest:
    lines = numbered_lines(body)
    async for number, line in lines:
        where = f"line {number}"
        return BatchRequest(_spec(await _loaded(line, where), where), paginate(_line_items(lines)))
    raise InvalidRequest(
        "the body is empty", reason="EMPTY", remedy="send the batch in the first line, then one item per line"
    )


def _spec(document: Any, where: str) -> BatchSpec:
    check_single_source(document, SOURCES)
    return decode(BatchSpec, document, where)


def check_single_source(document: Any, sources: Collection[str]) -> None:
    """Checks that a document names at most one source of the plan.

    Raises:
        InvalidRequest: it names several.
    """
    given = sorted(key for key in sources if isinstance(document, dict) and document.get(key) is not None)
    if len(given) > 1:
        raise InvalidRequest(
            f"the body has both {given[0]} and {given[1]}", remedy="send only one of them", port=given[0]
        )


async def _line_items(lines: AsyncIterator[tuple[int, bytes]]) -> AsyncIterator[tuple[SubmittedItem, int]]:
    async for number, line in lines:
        where = f"line {number}"
        yield read_item(await _loaded(line, where), where), len(line)


async def _document_items(items: list[Any]) -> AsyncIterator[tuple[SubmittedItem, int]]:
    for index, document in enumerate(items):
        yield read_item(document, f"items[{index}]"), 0


async def numbered_lines(body: AsyncIterable[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Iterates over the lines of a body that are not blank, with line numbers from 1.

    Raises:
        InvalidRequest: TOO_LARGE, a line is too long.
    """
    number, pending = 1, bytearray()
    async for chunk in body:
        first, *others = chunk.split(b"\n")
        pending += first
        for following in others:
            if pending.strip():
                yield number, bytes(pending)
            number, pending = number + 1, bytearray(following)
        if len(pending) > JSON_BYTES:
            raise too_large_error(f"line {number}", JSON_BYTES)
    if pending.strip():
        yield number, bytes(pending)


async def _loaded(content: bytes, where: str) -> Any:
    return (
        loads(content, where) if len(content) < INLINE_PARSE_BYTES else await asyncio.to_thread(loads, content, where)
    )
