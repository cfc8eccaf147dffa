"""Items of a batch from outside: read from JSON, with their values where they can be had.

A value that cannot be had costs its item, which is kept as failed; what is no item at all is refused.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.admission import WORDS_CHARACTERS, Admission
from gateway.file_references import Mention, Mentions, taken_out
from gateway.json_decoder import decode
from gateway.uploads import Allowance
from protos.hugginggpt.v1.batch_pb2 import NewItem
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import NewItems
from services.common.artifacts.naming import clean_name
from services.common.errors import InvalidRequest, NotFound, PermissionDenied, ServiceError

AT_ONCE = 8
"""Items whose values are looked up side by side."""


@dataclass(frozen=True)
class Sent:
    """An item as it was sent."""

    where: str
    """Such as items[3] or line 5."""
    item: NewItem
    mentions: Sequence[Mention] = ()


def read(document: Any, where: str) -> Sent:
    """An item, of JSON.

    Raises:
        InvalidRequest: it is none; naming what is wrong and where.
    """
    given = document.get("inputs") if isinstance(document, dict) else None
    mentions = list(taken_out(given, f"{where}.inputs"))
    return Sent(where, decode(NewItem, document, where), mentions)


class Items:
    """Takes items in.

    Args:
        admission: looks at values, and knows artifacts.
        mentions: brings in what is given as ids or URLs.
    """

    def __init__(self, admission: Admission, mentions: Mentions) -> None:
        self._admission = admission
        self._mentions = mentions

    async def settled(self, pages: AsyncIterable[Sequence[Sent]]) -> AsyncIterator[NewItems]:
        """The items of a batch as the orchestrator takes them.

        Raises:
            InvalidRequest: one of them is none.
            Overloaded: BYTES_QUOTA, what is fetched counts as what is sent.
            Unavailable: the store or the database does not answer.
        """
        allowance = self._mentions.of_batch()
        async for page in pages:
            yield await self._page(page, allowance)

    async def _page(self, page: Sequence[Sent], allowance: Allowance) -> NewItems:
        turn = asyncio.Semaphore(AT_ONCE)

        async def in_turn(sent: Sent) -> None:
            async with turn:
                await self._settle(sent, allowance)

        try:
            async with asyncio.TaskGroup() as group:
                for sent in page:
                    if _waits(sent):
                        group.create_task(in_turn(sent))
                    else:
                        await self._settle(sent, allowance)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return NewItems(items=[sent.item for sent in page])

    async def _settle(self, sent: Sent, of_batch: Allowance) -> None:
        try:
            self._admission.check_item(sent.item)
        except InvalidRequest as error:
            error.message, error.port = f"{sent.where}: {error.message}", f"{sent.where}.{error.port}"
            raise
        allowance = self._mentions.allowance(of_batch)
        meant = {mention.index: mention for mention in sent.mentions}
        for index, named in enumerate(sent.item.inputs):
            mention = meant.get(index)
            try:
                if mention:
                    named.value.artifact.CopyFrom(await self._mentions.artifact(mention, allowance))
                else:
                    await self._admission.settle(f"{sent.where}.inputs[{index}]", named.value)
            except (InvalidRequest, NotFound, PermissionDenied) as error:
                sent.item.name = sent.item.name or (_seen(mention.text) if mention else "")
                _fail(sent.item, named.name, error)
                return
        sent.item.name = sent.item.name or _first_name(sent.item)


def _waits(sent: Sent) -> bool:
    return bool(sent.mentions) or any(named.value.HasField("artifact") for named in sent.item.inputs)


def _seen(text: str) -> str:
    """As much of a text as a name may have."""
    return "".join(filter(str.isprintable, text))[:WORDS_CHARACTERS]


def _fail(item: NewItem, port: str, error: ServiceError) -> None:
    """What cannot be had is not kept either."""
    item.failure.CopyFrom(
        Failure(reason=error.reason, message=error.message, remedy=error.remedy, port=port, code=error.code.name)
    )
    del item.inputs[:]


def _first_name(item: NewItem) -> str:
    names = (clean_name(named.value.artifact.name) for named in item.inputs if named.value.artifact.name)
    return next(names, "")
