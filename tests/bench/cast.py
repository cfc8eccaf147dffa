"""`python -m tests.bench.cast`: planner, selector, responder and expert of known pace, in a process of their own.

They speak in bytes made beforehand wherever they can, so that what is measured beside them has the processor.
"""

import asyncio
import json
import selectors
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import lru_cache

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from protos.hugginggpt.internal.v1.planner_pb2 import PlanEnd, PlanEvent, PlanRequest
from protos.hugginggpt.internal.v1.responder_pb2 import RespondEvent, RespondRequest
from protos.hugginggpt.internal.v1.selector_pb2 import SelectRequest, SelectResponse
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_INTERNAL, Candidate, Endpoint
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_EMBEDDED, CONTROLLER_RANK, Decision
from services.common.channel import MESSAGE_LIMITS
from tests.bench import memory_limited_experts
from tests.bench.shapes import INPUTS, SPEC, script

DONE = InferResponse(outputs={"text": Value(text="done")}, revision="1").SerializeToString()
END = PlanEvent(end=PlanEnd(decision=Decision(controller=CONTROLLER_EMBEDDED, confidence=1.0))).SerializeToString()
TALLY = "/hugginggpt.v1.CastService/Tally"
"""Gives, as JSON, how often each of them was called: plan, check, select, infer; and the bytes that some were sent."""
ANSWER = (
    RespondEvent(text="It is done.").SerializeToString(),
    RespondEvent(decision=Decision(controller=CONTROLLER_EMBEDDED)).SerializeToString(),
)


class Cast:
    """All four, at one address; models of the shelves are elsewhere."""

    def __init__(self) -> None:
        self.address = ""
        self.shelves: tuple[str, ...] = ()
        self._called: Counter[str] = Counter()

    async def tally(self, _: bytes, __: object) -> bytes:
        return json.dumps(self._called).encode()

    async def plan(self, request: bytes, _: object) -> AsyncIterator[bytes]:
        begun = time.perf_counter()
        kind, pause, gap, tasks = _planned(request)
        self._called[kind] += 1
        self._called["plan_bytes"] += len(request)
        for place, task in enumerate(tasks):
            if pause or gap:
                await _pass(begun + pause + place * gap - time.perf_counter())
            yield task
        yield END

    async def select(self, request: bytes, _: object) -> bytes:
        self._called["select"] += 1
        pause, reply = _chosen(request, self.address, self.shelves)
        await _pass(pause)
        return reply

    async def infer(self, request: bytes, _: object) -> bytes:
        self._called["infer"] += 1
        await _pass(float(InferRequest.FromString(request).model) / 1000)
        return DONE

    async def respond(self, request: bytes, _: object) -> AsyncIterator[bytes]:
        self._called["respond_bytes"] += len(request)
        turns = RespondRequest.FromString(request).conversation
        await _pass(script(turns[-1].text).answer if turns else 0)
        for event in ANSWER:
            yield event


@lru_cache(256)
def _planned(request: bytes) -> tuple[str, float, float, list[bytes]]:
    asked = PlanRequest.FromString(request)
    if asked.goal.HasField("check"):
        return "check", 0, 0, [PlanEvent(task=task).SerializeToString() for task in asked.goal.check.draft.tasks]
    scripted = script(asked.conversation[-1].text)
    plan = scripted.supplied()
    for given in asked.inputs:
        plan.tasks[0].arguments[INPUTS[0]].value.CopyFrom(given.value)
    tasks = [PlanEvent(task=task).SerializeToString() for task in plan.tasks]
    return "plan", scripted.plan, scripted.gap, tasks


@lru_cache(4096)
def _chosen(request: bytes, address: str, shelves: tuple[str, ...]) -> tuple[float, bytes]:
    asked = SelectRequest.FromString(request)
    shelved = asked.task.pinned_model in memory_limited_experts.MODELS
    endpoints = [Endpoint(address=each) for each in shelves] if shelved else [Endpoint(address=address, loaded=True)]
    by = Candidate(
        model_id=asked.task.pinned_model or asked.task.source,
        revision="1",
        expert="shelves" if shelved else "cast",
        endpoints=endpoints,
        score=1.0,
        reason="it is the only one",
        location=MODEL_LOCATION_INTERNAL,
    )
    decision = Decision(controller=CONTROLLER_RANK, confidence=1.0)
    reply = SelectResponse(candidates=[by], decision=decision, spec=SPEC)
    return script(asked.request).select, reply.SerializeToString()


async def _pass(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


def _handlers(cast: Cast) -> list[grpc.GenericRpcHandler]:
    methods: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {
        "internal.v1.PlannerService": {"Plan": grpc.unary_stream_rpc_method_handler(cast.plan)},
        "internal.v1.SelectorService": {"Select": grpc.unary_unary_rpc_method_handler(cast.select)},
        "v1.ExpertService": {"Infer": grpc.unary_unary_rpc_method_handler(cast.infer)},
        "internal.v1.ResponderService": {"Respond": grpc.unary_stream_rpc_method_handler(cast.respond)},
        "v1.CastService": {"Tally": grpc.unary_unary_rpc_method_handler(cast.tally)},
    }
    return [
        grpc.method_handlers_generic_handler(f"hugginggpt.{service}", handlers) for service, handlers in methods.items()
    ]


async def main() -> None:
    cast, server, healthy = Cast(), grpc.aio.server(options=MESSAGE_LIMITS), health.aio.HealthServicer()
    server.add_generic_rpc_handlers(_handlers(cast))
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    cast.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    shelves = await memory_limited_experts.started()
    cast.shelves = tuple(address for _, address in shelves)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(cast.address, *cast.shelves, flush=True)
    await stop.wait()
    for each in (server, *(shelf for shelf, _ in shelves)):
        await each.stop(0)


if __name__ == "__main__":
    # Pauses as asked for: select() takes microseconds, where epoll rounds up to the next millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(main())
