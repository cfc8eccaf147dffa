"""SelectorService over gRPC: converts between messages and the selector's types."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2, plan_pb2
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    CANDIDATE_ROLE_SHADOW,
    INFERENCE_MODE_HYBRID,
    INFERENCE_MODE_LOCAL,
    INFERENCE_MODE_REMOTE,
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_INTERNAL,
    SELECTION_POLICY_LLM,
    SELECTION_POLICY_RANK,
    Candidate,
    CandidateRole,
)
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.errors import InvalidRequest, Unavailable
from services.selector import expert_list, paging
from services.selector.catalog import ExpertCatalog
from services.selector.catalog_view import sort_key
from services.selector.llm_ranker import LlmRanker
from services.selector.query import Avoid, Constraints, Mode, SelectionQuery, languages_of
from services.selector.removal import Removal
from services.selector.routing_status import routes
from services.selector.routing_table import RoutingTable
from services.selector.selector import Controller, SelectedModel, Selection, Selector
from services.selector.task_offers import primary

NOTIFY_SECONDS = 2.0
"""Longest wait of ForgetExpert for watchers that do not read."""

_MODES = {INFERENCE_MODE_LOCAL: Mode.LOCAL, INFERENCE_MODE_HYBRID: Mode.HYBRID, INFERENCE_MODE_REMOTE: Mode.REMOTE}


class SelectorServicer(rpc.SelectorServiceServicer):
    """Serves the catalogue and the selector.

    Args:
        catalog: of experts.
        selector: selects by ranking.
        removal: removes experts.
        ranker: selects with an LLM; None: no endpoint is configured.
        table: the routing table; with one, an LLM is called only if the request selects that policy.
    """

    def __init__(
        self,
        catalog: ExpertCatalog,
        selector: Selector,
        removal: Removal,
        ranker: LlmRanker | None = None,
        table: RoutingTable = RoutingTable(),  # noqa: B008  # frozen
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._policy = SELECTION_POLICY_LLM if ranker and not table else SELECTION_POLICY_RANK
        self._selector = selector
        self._removal = removal
        self._watchers: set[_Watcher] = set()
        self._ranker = ranker

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        query = query_from_pb(request, allows_external=call_context.allows_external_endpoints())
        if self._ranker and (request.selection_policy or self._policy) == SELECTION_POLICY_LLM:
            return selection_to_pb(await self._ranker.choose(query, context.time_remaining()))
        choice = self._selector.choose(query)
        if request.selection_policy == SELECTION_POLICY_LLM and choice.controller is Controller.RANK:
            choice = replace(choice, fell_back_because="no LLM is configured")
        return selection_to_pb(choice)

    async def ListTasks(self, request: gateway_pb2.ListTasksRequest, context: Any) -> gateway_pb2.ListTasksResponse:
        view = self._catalog.view
        if request.known_revision.partition(".")[0] == view.tasks_digest and not request.page_token:
            return gateway_pb2.ListTasksResponse(revision=view.revision, unchanged=True)
        tasks, token = paging.page(
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
        models, token = paging.page(view.models_of(request.task), sort_key, request.page_size, request.page_token)
        reply = gateway_pb2.ListModelsResponse(revision=view.revision, models=models, next_page_token=token)
        if not request.page_token:
            reply.routes.extend(routes(self._table, view, request.task))
            reply.selection_policy = self._policy
        return reply

    async def ListExperts(
        self, request: selector_pb2.ListExpertsRequest, context: Any
    ) -> selector_pb2.ListExpertsResponse:
        experts, token = paging.page(
            expert_list.experts(self._catalog), lambda expert: (expert.name,), request.page_size, request.page_token
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


def query_from_pb(request: selector_pb2.SelectRequest, *, allows_external: bool) -> SelectionQuery:
    """Converts a request.

    Raises:
        InvalidRequest: the task's parameters are no JSON object.
    """
    task, constraints = request.task, request.constraints
    return SelectionQuery(
        task=task.task,
        source=f"{task.source} {_instruction(task)}",
        request=request.request,
        languages=languages_of(_parameters(task)),
        model=task.pinned_model,
        revision=task.pinned_revision,
        mode=_MODES.get(request.inference_mode),
        allows_external=allows_external,
        avoid=[Avoid(avoid.model_id, avoid.expert, avoid.address) for avoid in request.avoid],
        constraints=Constraints(
            licenses=frozenset(license_.lower() for license_ in constraints.licenses),
            languages=frozenset(map(primary, constraints.languages)),
            max_parameter_count=constraints.max_parameter_count,
            allowed=frozenset(constraints.allowed),
            regions=frozenset(region.lower() for region in constraints.regions),
        ),
        limit=request.limit,
        seed=call_context.current().run_id,
    )


def selection_to_pb(choice: Selection) -> selector_pb2.SelectResponse:
    """Converts a selection; the first candidate is the primary one."""
    return selector_pb2.SelectResponse(
        candidates=[_candidate(chosen, role) for chosen, role in _roles(choice)],
        decision=Decision(
            controller=plan_pb2.Controller.Value(f"CONTROLLER_{choice.controller.upper()}"),
            llm_model=choice.llm_model,
            reason=choice.reason,
            confidence=choice.confidence,
            fell_back_because=choice.fell_back_because,
            usage=choice.usage.to_pb() if choice.usage else None,
            version=choice.version,
        ),
        spec=choice.spec,
    )


def _roles(choice: Selection) -> Iterator[tuple[SelectedModel, "CandidateRole.ValueType"]]:
    first, *fallbacks = choice.chosen
    yield first, CANDIDATE_ROLE_PRIMARY
    for fallback in fallbacks:
        yield fallback, CANDIDATE_ROLE_FALLBACK
    if choice.shadow:
        yield choice.shadow, CANDIDATE_ROLE_SHADOW


def _candidate(chosen: SelectedModel, role: "CandidateRole.ValueType") -> selector_pb2.SelectedCandidate:
    offer = chosen.offer
    candidate = Candidate(
        model_id=offer.card.id,
        revision=offer.card.revision,
        expert=offer.card.expert,
        role=role,
        score=chosen.score,
        reason=chosen.reason,
        location=MODEL_LOCATION_EXTERNAL if offer.external else MODEL_LOCATION_INTERNAL,
        dormant=not offer.replicas,
        start_duration=offer.start_duration,
        expert_version=offer.version,
    )
    endpoints = [replica.endpoint(offer.card.id) for replica in chosen.replicas]
    return selector_pb2.SelectedCandidate(candidate=candidate, endpoints=endpoints)


def _instruction(task: Task) -> str:
    """Instruction text of the task, if it has one."""
    return task.arguments["instruction"].value.text if "instruction" in task.arguments else ""


def _parameters(task: Task) -> Mapping[str, object]:
    try:
        parameters = json.loads(task.parameters_json or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise InvalidRequest("the task's parameters are no JSON object", remedy="send a JSON object, or nothing")
    return parameters
