"""Planner, selector, responder and expert with known delays, in one process: python -m tests.bench.scripted_services.

They reply with bytes serialized in advance wherever possible, to leave the CPU to the process that is measured.
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
from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint, SelectedCandidate, SelectRequest, SelectResponse
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_INTERNAL, Candidate
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_EMBEDDED, CONTROLLER_RANK, Decision
from services.common.channel import MESSAGE_LIMITS
from tests.bench import memory_limited_experts
from tests.bench.shapes import INPUTS, SPEC, parse_script

DONE = InferResponse(outputs={"text": Value(text="done")}, revision="1").SerializeToString()
END = PlanEvent(end=PlanEnd(decision=Decision(controller=CONTROLLER_EMBEDDED, confidence=1.0))).SerializeToString()
TALLY = "/hugginggpt.v1.ScriptedService/Tally"
"""Method that returns as JSON the numbers of calls (plan, check, select, infer) and of bytes sent to some."""
ANSWER = (
    RespondEvent(text="It is done.").SerializeToString(),
    RespondEvent(decision=Decision(controller=CONTROLLER_EMBEDDED)).SerializeToString(),
)


class ScriptedServices:
    """Planner, selector, responder and expert at one address; some models are at memory-limited replicas instead."""

    def __init__(self) -> None:
        self.address = ""
        self.memory_limited: tuple[str, ...] = ()
        self._called: Counter[str] = Counter()

    async def tally(self, _: bytes, __: object) -> bytes:
        return json.dumps(self._called).encode()

    async def plan(self, request: bytes, _: object) -> AsyncIterator[bytes]:
        started = time.perf_counter()
        kind, delay, gap, tasks = _planned(request)
        self._called[kind] += 1
        self._called["plan_bytes"] += len(request)
        for index, task in enumerate(tasks):
            if delay or gap:
                await _sleep(started + delay + index * gap - time.perf_counter())
            yield task
        yield END

    async def select(self, request: bytes, _: object) -> bytes:
        self._called["select"] += 1
        delay, reply = _selected(request, self.address, self.memory_limited)
        await _sleep(delay)
        return reply

    async def infer(self, request: bytes, _: object) -> bytes:
        self._called["infer"] += 1
        await _sleep(float(InferRequest.FromString(request).model) / 1000)
        return DONE

    async def respond(self, request: bytes, _: object) -> AsyncIterator[bytes]:
        self._called["respond_bytes"] += len(request)
        turns = RespondRequest.FromString(request).conversation
        await _sleep(parse_script(turns[-1].text).answer if turns else 0)
        for event in ANSWER:
            yield event


@lru_cache(256)
def _planned(request: bytes) -> tuple[str, float, float, list[bytes]]:
    """Kind of the call, seconds until the first task, seconds between tasks, and the events of the tasks."""
    message = PlanRequest.FromString(request)
    if message.goal.HasField("check"):
        return "check", 0, 0, [PlanEvent(task=task).SerializeToString() for task in message.goal.check.draft.tasks]
    script = parse_script(message.conversation[-1].text)
    plan = script.plan_message()
    for named in message.inputs:
        plan.tasks[0].arguments[INPUTS[0]].value.CopyFrom(named.value)
    tasks = [PlanEvent(task=task).SerializeToString() for task in plan.tasks]
    return "plan", script.plan, script.gap, tasks


@lru_cache(4096)
def _selected(request: bytes, address: str, memory_limited: tuple[str, ...]) -> tuple[float, bytes]:
    """Seconds of the selection, and its reply."""
    message = SelectRequest.FromString(request)
    is_limited = message.task.pinned_model in memory_limited_experts.MODELS
    addresses = [Endpoint(address=each) for each in memory_limited]
    candidate = Candidate(
        model_id=message.task.pinned_model or message.task.source,
        revision="1",
        expert="memory-limited" if is_limited else "scripted",
        score=1.0,
        reason="the only candidate",
        location=MODEL_LOCATION_INTERNAL,
    )
    decision = Decision(controller=CONTROLLER_RANK, confidence=1.0)
    endpoints = addresses if is_limited else [Endpoint(address=address, loaded=True)]
    selected = SelectedCandidate(candidate=candidate, endpoints=endpoints)
    reply = SelectResponse(candidates=[selected], decision=decision, spec=SPEC)
    return parse_script(message.request).select, reply.SerializeToString()


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


def _handlers(scripted: ScriptedServices) -> list[grpc.GenericRpcHandler]:
    methods: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {
        "internal.v1.PlannerService": {"Plan": grpc.unary_stream_rpc_method_handler(scripted.plan)},
        "internal.v1.SelectorService": {"Select": grpc.unary_unary_rpc_method_handler(scripted.select)},
        "v1.ExpertService": {"Infer": grpc.unary_unary_rpc_method_handler(scripted.infer)},
        "internal.v1.ResponderService": {"Respond": grpc.unary_stream_rpc_method_handler(scripted.respond)},
        "v1.ScriptedService": {"Tally": grpc.unary_unary_rpc_method_handler(scripted.tally)},
    }
    return [
        grpc.method_handlers_generic_handler(f"hugginggpt.{service}", handlers) for service, handlers in methods.items()
    ]


async def main() -> None:
    scripted, server, healthy = ScriptedServices(), grpc.aio.server(options=MESSAGE_LIMITS), health.aio.HealthServicer()
    server.add_generic_rpc_handlers(_handlers(scripted))
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    scripted.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    replicas = await memory_limited_experts.start_replicas()
    scripted.memory_limited = tuple(address for _, address in replicas)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(scripted.address, *scripted.memory_limited, flush=True)
    await stop.wait()
    for each in (server, *(replica for replica, _ in replicas)):
        await each.stop(0)


if __name__ == "__main__":
    # select() sleeps with a resolution of microseconds, where epoll rounds up to the next millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(main())
