"""The planner, the selector and the responder of the campaign: scripted, deterministic, and at times unreliable."""

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
    Endpoint,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED, CONTROLLER_EMBEDDED, CONTROLLER_RANK, Decision
from services.common.errors import Unavailable
from services.common.server import serving
from tests.chaos.cases import SPECS, Case, case_of

PIECE, PIECE_SECONDS = 20, 0.02
"""Characters of the answer sent at once, and how long they take to be thought of."""

END = planner_pb2.PlanEvent(end=planner_pb2.PlanEnd(decision=Decision(controller=CONTROLLER_EMBEDDED, confidence=1.0)))


class Planner(planner_pb2_grpc.PlannerServiceServicer):
    """Streams the plans of the cases; some streams break off and wait to be continued."""

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
        there = max((prior.task.id for prior in request.prior), default=0)
        rest = [node for node in case.nodes if node.id > there]
        until = self._breaks(case)
        for node in islice(rest, until):
            await context.write(planner_pb2.PlanEvent(task=node.task(draft=case.edited)))
        if until is None:
            await context.write(END)
        elif until % 2:
            raise Unavailable("the planner is said to be away")  # else the stream ends as if nothing were wrong

    def _breaks(self, case: Case) -> int | None:
        """After how many tasks this stream breaks off."""
        if self._broken[case.number] == len(case.breaks):
            return None
        self._broken[case.number] += 1
        self._tally["plan broken off"] += 1
        return case.breaks[self._broken[case.number] - 1]


class Selector(selector_pb2_grpc.SelectorServiceServicer):
    """Ranks three models of two experts, the order given by the task."""

    def __init__(self, cases: Mapping[int, Case], experts: Mapping[str, Sequence[str]], tally: Counter[str]) -> None:
        self._shy = {(case.number, node.id) for case in cases.values() for node in case.nodes if node.shy}
        self._experts = experts
        self._tally = tally

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        task = (case_of(request.request), request.task.id)
        if task in self._shy:
            self._shy.remove(task)
            self._tally["selector unavailable"] += 1
            raise Unavailable("the selector is said to be away")
        models = [("red", "north"), ("green", "south"), ("blue", "north")]
        first = request.task.id % len(models)
        ranked = [*models[first:], *models[:first]]
        return selector_pb2.SelectResponse(
            candidates=[self._candidate(model, expert, place) for place, (model, expert) in enumerate(ranked)],
            decision=Decision(controller=CONTROLLER_RANK),
            spec=SPECS[request.task.task],
        )

    def _candidate(self, model: str, expert: str, place: int) -> Candidate:
        return Candidate(
            model_id=model,
            revision="1",
            expert=expert,
            endpoints=[Endpoint(address=address, loaded=True) for address in self._experts[expert]],
            role=CANDIDATE_ROLE_FALLBACK if place else CANDIDATE_ROLE_PRIMARY,
            score=1.0 - place / 10,
            location=MODEL_LOCATION_INTERNAL,
        )


class Responder(responder_pb2_grpc.ResponderServiceServicer):
    """Says what every task gave; goes on where an earlier answer ended."""

    def __init__(self, cases: Mapping[int, Case], complaints: list[str]) -> None:
        self._cases = cases
        self._complaints = complaints

    async def Respond(self, request: responder_pb2.RespondRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        case = self._cases[case_of(request.conversation[-1].text)]
        words = "".join(
            f"Task {status.task.id} gave {status.result.outputs['text'].text}. " for status in request.tasks
        )
        if not words.startswith(request.sent):
            self._complaints.append(f"case {case.number}: what was sent of the answer is not its beginning")
        for start in range(len(request.sent), len(words), PIECE):
            await asyncio.sleep(PIECE_SECONDS)
            await context.write(responder_pb2.RespondEvent(text=words[start : start + PIECE]))
        await context.write(responder_pb2.RespondEvent(decision=Decision(controller=CONTROLLER_COMPOSED)))


@asynccontextmanager
async def cast(
    cases: Sequence[Case], experts: Mapping[str, Sequence[str]], tally: Counter[str], complaints: list[str]
) -> AsyncIterator[dict[str, str]]:
    """Serves all three; gives their addresses by name.

    Args:
        cases: whose plans are asked for.
        experts: addresses by name of expert.
        tally: counts what goes wrong here by intent.
        complaints: told of what must not be.
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
                Selector(known, experts, tally),  # type: ignore[abstract]  # only choices are asked for
                selector_pb2.DESCRIPTOR.services_by_name["SelectorService"],
            ),
            "responder": await served(
                responder_pb2_grpc.add_ResponderServiceServicer_to_server,
                Responder(known, complaints),
                responder_pb2.DESCRIPTOR.services_by_name["ResponderService"],
            ),
        }
