"""Planner, selector and responder of the campaign: scripted, deterministic, and unreliable on purpose."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from protos.hugginggpt.internal.v1 import (
    planner_pb2,
    planner_pb2_grpc,
    responder_pb2,
    responder_pb2_grpc,
    selector_pb2,
    selector_pb2_grpc,
)
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    MODEL_LOCATION_INTERNAL,
    Candidate,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED, CONTROLLER_EMBEDDED, CONTROLLER_RANK, Decision
from services.common.errors import Unavailable
from services.common.server import serving
from tests.chaos.cases import SPECS, Case, case_of

CHUNK, CHUNK_SECONDS = 20, 0.02
"""Characters of a chunk of the response, and the delay before it."""

END = planner_pb2.PlanEvent(end=planner_pb2.PlanEnd(decision=Decision(controller=CONTROLLER_EMBEDDED, confidence=1.0)))


class Planner(planner_pb2_grpc.PlannerServiceServicer):
    """Streams the plans of the cases; some streams are interrupted, and continue in a later call."""

    def __init__(self, cases: Mapping[int, Case], tally: Counter[str]) -> None:
        self._cases = cases
        self._tally = tally
        self._broken: Counter[int] = Counter()

    async def Plan(self, request: planner_pb2.PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        if request.goal.HasField("check"):
            for drafted in request.goal.check.draft.tasks:
                await context.write(planner_pb2.PlanEvent(task=drafted))
            await context.write(END)
            return
        case = self._cases[case_of(request.conversation[-1].text)]
        last = max((prior.task.id for prior in request.prior), default=0)
        rest = [node for node in case.nodes if node.id > last]
        until = self._breaks(case)
        for node in islice(rest, until):
            await context.write(planner_pb2.PlanEvent(task=node.task(draft=case.edited)))
        if until is None:
            await context.write(END)
        elif until % 2:
            raise Unavailable("scripted fault: planner unavailable")  # for even numbers the stream just ends

    def _breaks(self, case: Case) -> int | None:
        """After how many tasks this stream breaks off."""
        if self._broken[case.number] == len(case.stream_breaks):
            return None
        self._broken[case.number] += 1
        self._tally["plan broken off"] += 1
        return case.stream_breaks[self._broken[case.number] - 1]


class Selector(selector_pb2_grpc.SelectorServiceServicer):
    """Ranks three models of two experts, in an order that depends on the task."""

    def __init__(self, cases: Mapping[int, Case], experts: Mapping[str, Sequence[str]], tally: Counter[str]) -> None:
        self._failing = {
            (case.number, node.id) for case in cases.values() for node in case.nodes if node.selector_fails
        }
        self._experts = experts
        self._tally = tally

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        task = (case_of(request.request), request.task.id)
        if task in self._failing:
            self._failing.remove(task)
            self._tally["selector unavailable"] += 1
            raise Unavailable("scripted fault: selector unavailable")
        models = [("red", "north"), ("green", "south"), ("blue", "north")]
        first = request.task.id % len(models)
        ranked = [*models[first:], *models[:first]]
        return selector_pb2.SelectResponse(
            candidates=[self._candidate(model, expert, rank) for rank, (model, expert) in enumerate(ranked)],
            decision=Decision(controller=CONTROLLER_RANK),
            spec=SPECS[request.task.task],
        )

    def _candidate(self, model: str, expert: str, rank: int) -> selector_pb2.SelectedCandidate:
        candidate = Candidate(
            model_id=model,
            revision="1",
            expert=expert,
            role=CANDIDATE_ROLE_FALLBACK if rank else CANDIDATE_ROLE_PRIMARY,
            score=1.0 - rank / 10,
            location=MODEL_LOCATION_INTERNAL,
        )
        endpoints = [selector_pb2.Endpoint(address=address, loaded=True) for address in self._experts[expert]]
        return selector_pb2.SelectedCandidate(candidate=candidate, endpoints=endpoints)


class Responder(responder_pb2_grpc.ResponderServiceServicer):
    """Responds with the outputs of all tasks; continues a response that was partly sent."""

    def __init__(self, cases: Mapping[int, Case], violations: list[str]) -> None:
        self._cases = cases
        self._violations = violations

    async def Respond(self, request: responder_pb2.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        case = self._cases[case_of(request.conversation[-1].text)]
        text = "".join(f"Task {status.task.id} gave {status.result.outputs['text'].text}. " for status in request.tasks)
        if not text.startswith(request.sent):
            self._violations.append(f"case {case.number}: the text already sent is not the beginning of the answer")
        for start in range(len(request.sent), len(text), CHUNK):
            await asyncio.sleep(CHUNK_SECONDS)
            await context.write(responder_pb2.RespondEvent(text=text[start : start + CHUNK]))
        await context.write(responder_pb2.RespondEvent(decision=Decision(controller=CONTROLLER_COMPOSED)))


@asynccontextmanager
async def serve_scripted_services(
    cases: Sequence[Case], experts: Mapping[str, Sequence[str]], tally: Counter[str], violations: list[str]
) -> AsyncIterator[dict[str, str]]:
    """Serves the three services, and yields their addresses by name.

    Args:
        cases: known to the services.
        experts: addresses by expert.
        tally: counts the injected faults.
        violations: receives violations.
    """
    known = {case.number: case for case in cases}
    async with AsyncExitStack() as stack:

        async def served(add: Any, servicer: object, service: ServiceDescriptor) -> str:
            return f"127.0.0.1:{(await stack.enter_async_context(serving(partial(add, servicer), service))).port}"

        yield {
            "planner": await served(
                planner_pb2_grpc.add_PlannerServiceServicer_to_server,
                Planner(known, tally),
                planner_pb2.DESCRIPTOR.services_by_name["PlannerService"],
            ),
            "selector": await served(
                selector_pb2_grpc.add_SelectorServiceServicer_to_server,
                Selector(known, experts, tally),  # type: ignore[abstract]  # only Select is called
                selector_pb2.DESCRIPTOR.services_by_name["SelectorService"],
            ),
            "responder": await served(
                responder_pb2_grpc.add_ResponderServiceServicer_to_server,
                Responder(known, violations),
                responder_pb2.DESCRIPTOR.services_by_name["ResponderService"],
            ),
        }
