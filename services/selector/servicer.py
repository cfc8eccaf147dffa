"""SelectorService over gRPC: converts between messages and the selector's types."""

import asyncio
import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.model_pb2 import (
    SELECTION_POLICY_LLM,
    SELECTION_POLICY_RANK,
)
from services.common import call_context
from services.common.errors import InvalidRequest, Unavailable
from services.selector.catalog import ExpertCatalog
from services.selector.catalog_view import sort_key
from services.selector.expert_administration import ExpertRemoval, list_experts
from services.selector.llm_selector import LlmSelector
from services.selector.routing_status import routes
from services.selector.routing_table import RoutingTable
from services.selector.selection import Controller, SelectionQuery
from services.selector.selector import Selector

_Entry = TypeVar("_Entry")
_Key = tuple[str, ...]

NOTIFY_SECONDS = 2.0
"""Longest wait of ForgetExpert for watchers that do not read."""


class SelectorServicer(rpc.SelectorServiceServicer):
    """Serves the catalogue and the selector.

    Args:
        catalog: of experts.
        selector: selects by ranking.
        removal: removes experts.
        llm_selector: selects with an LLM; None: no endpoint is configured.
        table: the routing table; with one, an LLM is called only if the request selects that policy.
    """

    def __init__(
        self,
        catalog: ExpertCatalog,
        selector: Selector,
        removal: ExpertRemoval,
        llm_selector: LlmSelector | None = None,
        table: RoutingTable = RoutingTable(),  # noqa: B008  # frozen
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._policy = SELECTION_POLICY_LLM if llm_selector and not table else SELECTION_POLICY_RANK
        self._selector = selector
        self._removal = removal
        self._watchers: set[_Watcher] = set()
        self._llm_selector = llm_selector

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        query = SelectionQuery.from_proto(request, allows_external=call_context.allows_external_endpoints())
        if self._llm_selector and (request.selection_policy or self._policy) == SELECTION_POLICY_LLM:
            return (await self._llm_selector.choose(query, context.time_remaining())).to_proto()
        selection = self._selector.choose(query)
        if request.selection_policy == SELECTION_POLICY_LLM and selection.controller is Controller.RANK:
            selection = replace(selection, fell_back_because="no LLM is configured")
        return selection.to_proto()

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        view = self._catalog.view
        if request.known_revision.partition(".")[0] == view.tasks_digest and not request.page_token:
            return gateway_pb2.ListTasksResponse(revision=view.revision, unchanged=True)
        tasks, token = _page(
            list(view.tasks.values()), lambda task: (task.spec.name,), request.page_size, request.page_token
        )
        reply = gateway_pb2.ListTasksResponse(revision=view.revision, tasks=tasks, next_page_token=token)
        if not request.page_token:
            reply.failing.extend(view.failing.values())
        return reply

    async def ListModels(self, request: gateway_pb2.ListModelsRequest, context: Any) -> gateway_pb2.ListModelsResponse:
        view = self._catalog.view
        if request.known_revision == view.revision and not request.page_token:
            return gateway_pb2.ListModelsResponse(revision=view.revision, unchanged=True)
        models, token = _page(view.models_of(request.task), sort_key, request.page_size, request.page_token)
        reply = gateway_pb2.ListModelsResponse(revision=view.revision, models=models, next_page_token=token)
        if not request.page_token:
            reply.routes.extend(routes(self._table, view, request.task))
            reply.selection_policy = self._policy
        return reply

    async def ListExperts(
        self, request: selector_pb2.ListExpertsRequest, context: Any
    ) -> selector_pb2.ListExpertsResponse:
        experts, token = _page(
            list_experts(self._catalog), lambda expert: (expert.name,), request.page_size, request.page_token
        )
        return selector_pb2.ListExpertsResponse(experts=experts, next_page_token=token)

    async def ForgetExpert(
        self, request: selector_pb2.ForgetExpertRequest, context: Any
    ) -> selector_pb2.ForgetExpertResponse:
        await self._removal.forget(request.name)
        await self._wait_for_watchers()
        return selector_pb2.ForgetExpertResponse()

    async def _wait_for_watchers(self) -> None:
        """Waits until all watchers have the current revision: planner and orchestrators cache the catalogue."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTIFY_SECONDS):
                for watcher in list(self._watchers):
                    while watcher in self._watchers and watcher.revision != self._catalog.view.revision:
                        await watcher.next()

    async def WatchCatalogue(self, request: selector_pb2.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            while revision := await self._catalog.wait_for_revision(watcher.revision):
                await context.write(selector_pb2.WatchCatalogueResponse(revision=revision))
                watcher.sent(revision)
        finally:
            self._watchers.discard(watcher)
            watcher.sent("")
        raise Unavailable("the selector is stopping", remedy="watch again")


class _Watcher:
    """A stream of catalogue revisions."""

    def __init__(self) -> None:
        self.revision = ""
        """The last revision sent."""
        self._sent = asyncio.Event()

    def sent(self, revision: str) -> None:
        self.revision = revision
        self._sent.set()
        self._sent = asyncio.Event()

    async def next(self) -> None:
        """Waits until another revision was sent, or the stream has ended."""
        await self._sent.wait()


# ---------------------------------------------------------------- pages


def _page(
    entries: Sequence[_Entry], key: Callable[[_Entry], _Key], size: int, token: str
) -> tuple[Sequence[_Entry], str]:
    """A page and the token of the next; the token is empty on the last page.

    A page begins after the key of the last entry of the page before, even if that is gone.

    Args:
        entries: the whole list, sorted by key.
        key: identifies an entry.
        size: entries of a page; 0 means all.
        token: token returned with the page before; empty for the first page.

    Raises:
        InvalidRequest: the size is negative, or the token invalid.
    """
    if size < 0:
        raise InvalidRequest("the page size is negative", remedy="give 0 for all, or a positive number")
    start = bisect_right(entries, _parse_page_token(token), key=key) if token else 0
    found = entries[start : start + size] if size else entries[start:]
    is_last = start + len(found) == len(entries)
    return found, "" if is_last else _page_token(key(found[-1]))


def _page_token(key: _Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _parse_page_token(token: str) -> _Key:
    try:
        fields = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        fields = None
    if isinstance(fields, list) and fields and all(isinstance(field, str) for field in fields):
        return tuple(fields)
    raise InvalidRequest("the page token is invalid", remedy="begin again without one")
