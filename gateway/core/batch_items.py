"""Batch items: parsing, paging, validation and resolution of their values.

An item whose values cannot be resolved is stored as failed; a malformed item rejects the batch.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.file_references import FileResolver, RunFileReference, extract_references
from gateway.core.uploads import Allowance
from gateway.core.validation import MAX_TEXT_CHARACTERS, RequestValidator
from gateway.json_decoder import decode
from protos.hugginggpt.v1.batch_pb2 import NewItem
from protos.hugginggpt.v1.gateway_pb2 import NewItems
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest, NotFound, PermissionDenied, ServiceError, to_failure

MAX_CONCURRENT = 8
"""Items of a page whose values are resolved concurrently."""

PAGE_ITEMS, PAGE_INPUTS, PAGE_BYTES = 100, 1_000, 1_000_000
"""Limits of a page of items; a page ends when it reaches one of them."""

MAX_ITEMS = 1_000_000


@dataclass(frozen=True)
class SubmittedItem:
    """An item as sent by the client."""

    path: str
    """Position in the request, such as items[3] or line 5."""
    item: NewItem
    references: Sequence[RunFileReference] = ()


def read_item(document: Any, path: str) -> SubmittedItem:
    """Parses an item.

    Raises:
        InvalidRequest: the item is malformed; the error names the field.
    """
    given = document.get("inputs") if isinstance(document, dict) else None
    references = list(extract_references(given, f"{path}.inputs"))
    return SubmittedItem(path, decode(NewItem, document, path), references)


async def paginate(sent: AsyncIterator[tuple[SubmittedItem, int]]) -> AsyncIterator[list[SubmittedItem]]:
    """Groups items into pages; other tasks of the event loop run between pages.

    Args:
        sent: items with their lengths in bytes.

    Raises:
        InvalidRequest: TOO_LARGE, too many items.
    """
    page, inputs, size, total = list[SubmittedItem](), 0, 0, 0
    async for item, length in sent:
        total += 1
        if total > MAX_ITEMS:
            message = f"the batch has more than {MAX_ITEMS} items"
            raise InvalidRequest(message, reason="TOO_LARGE", remedy="split it into several batches", port="items")
        page.append(item)
        inputs, size = inputs + len(item.item.inputs), size + length
        if len(page) >= PAGE_ITEMS or inputs >= PAGE_INPUTS or size >= PAGE_BYTES:
            yield page
            await asyncio.sleep(0)
            page, inputs, size = [], 0, 0
    if page:
        yield page


class ItemPreparer:
    """Validates items and resolves their values.

    Args:
        validator: validates items and values.
        file_resolver: resolves files given by id or URL.
    """

    def __init__(self, validator: RequestValidator, file_resolver: FileResolver) -> None:
        self._validator = validator
        self._file_resolver = file_resolver

    async def prepared_pages(self, pages: AsyncIterable[Sequence[SubmittedItem]]) -> AsyncIterator[NewItems]:
        """Prepares the items of a batch for the orchestrator, page by page.

        Raises:
            InvalidRequest: an item is malformed.
            Overloaded: BYTES_QUOTA; fetched bytes count like sent ones.
            Unavailable: the artifact store or the database is unavailable.
        """
        allowance = self._file_resolver.batch_allowance()
        async for page in pages:
            yield await self._page(page, allowance)

    async def _page(self, page: Sequence[SubmittedItem], allowance: Allowance) -> NewItems:
        permits = asyncio.Semaphore(MAX_CONCURRENT)

        async def with_permit(sent: SubmittedItem) -> None:
            async with permits:
                await self._prepare(sent, allowance)

        try:
            async with asyncio.TaskGroup() as group:
                for sent in page:
                    if _needs_lookup(sent):
                        group.create_task(with_permit(sent))
                    else:
                        await self._prepare(sent, allowance)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return NewItems(items=[sent.item for sent in page])

    async def _prepare(self, sent: SubmittedItem, batch_allowance: Allowance) -> None:
        try:
            self._validator.check_item(sent.item)
        except InvalidRequest as error:
            error.message, error.port = f"{sent.path}: {error.message}", f"{sent.path}.{error.port}"
            raise
        allowance = self._file_resolver.allowance(batch_allowance)
        by_index = {reference.index: reference for reference in sent.references}
        for index, named in enumerate(sent.item.inputs):
            reference = by_index.get(index)
            try:
                if reference:
                    named.value.artifact.CopyFrom(await self._file_resolver.fetch(reference, allowance))
                else:
                    await self._validator.normalize_value(f"{sent.path}.inputs[{index}]", named.value)
            except (InvalidRequest, NotFound, PermissionDenied) as error:
                sent.item.name = sent.item.name or (_printable(reference.text) if reference else "")
                _fail(sent.item, named.name, error)
                return
        sent.item.name = sent.item.name or _first_name(sent.item)


def _needs_lookup(sent: SubmittedItem) -> bool:
    return bool(sent.references) or any(named.value.HasField("artifact") for named in sent.item.inputs)


def _printable(text: str) -> str:
    """Printable characters of a text, shortened to the length of a name."""
    return "".join(filter(str.isprintable, text))[:MAX_TEXT_CHARACTERS]


def _fail(item: NewItem, port: str, error: ServiceError) -> None:
    """Marks an item as failed and drops its inputs."""
    item.failure.CopyFrom(to_failure(error))
    item.failure.port = port
    del item.inputs[:]


def _first_name(item: NewItem) -> str:
    names = (clean_name(named.value.artifact.name) for named in item.inputs if named.value.artifact.name)
    return next(names, "")
