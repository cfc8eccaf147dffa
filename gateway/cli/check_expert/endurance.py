"""How an expert bears callers in a hurry, callers that leave, too many of them, and its own end."""

import asyncio
import os
import signal
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from gateway.cli.check_expert.error_text import failure_text
from gateway.cli.check_expert.findings import ok, wrong
from gateway.cli.check_expert.target import Outcome, Target
from gateway.cli.doctor_finding import Finding, Level
from protos.hugginggpt.v1.expert_pb2 import InferRequest, ProgressRequest
from services.common.errors import from_rpc

CALLS = 200
CROWD_SECONDS = 20.0
"""How long a crowd's calls are waited for; then they are cancelled."""

HURRIES, HURRY_SECONDS = 8, 0.001
LEAVING = 3


async def deadlines(target: Target, request: InferRequest) -> Finding:
    """Calls whose deadline passes before they can be answered."""
    outcomes = [await target.infer(request, HURRY_SECONDS) for _ in range(HURRIES)]
    strange = [each for each in outcomes if each.error and each.error.code is not grpc.StatusCode.DEADLINE_EXCEEDED]
    if strange:
        return wrong("deadline", f"a call of 1 ms gives {strange[0].told}", "DEADLINE_EXCEEDED is expected")
    return await _still_answers(target, request, "deadline", f"{HURRIES} calls of 1 ms, then one that is answered")


async def cancelling(target: Target, request: InferRequest, typical_seconds: float) -> Finding:
    """Calls whose callers leave in the middle."""
    staying = target.start(request)
    calls = [target.start(request) for _ in range(LEAVING)]
    await asyncio.sleep(min(typical_seconds / 2, 0.5))
    for call in calls:
        call.cancel()
    try:
        await staying
    except grpc.aio.AioRpcError as error:
        found = f"the call that stays: {failure_text(from_rpc(error), target.seconds)}"
        return wrong("cancel", found, "a cancelled call must not affect the others")
    return await _still_answers(target, request, "cancel", f"{LEAVING} callers leave, who stays is answered")


async def following(target: Target) -> Finding:
    """The progress of a call that it does not know."""
    remedy = "leave out calls that are not there"
    try:
        async with asyncio.timeout(5):
            events = [event async for event in target.stub.Progress(ProgressRequest(call_ids=["no-such-call"]))]
    except TimeoutError:
        return wrong("progress", "does not end for a call it does not know", remedy)
    except grpc.aio.AioRpcError as error:
        return wrong("progress", failure_text(from_rpc(error), target.seconds), remedy)
    if events:
        return wrong("progress", "tells of a call it does not know", remedy)
    return ok("progress", "ends for calls that have ended")


async def crowd(target: Target, request: InferRequest) -> Finding:
    """More calls at once than it takes."""
    calls = [asyncio.create_task(target.infer(request)) for _ in range(CALLS)]
    await asyncio.wait(calls, timeout=CROWD_SECONDS)
    ended = [call.result() for call in calls if call.done()]
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    refused = [each for each in ended if each.error]
    if strange := next((each for each in refused if not _is_overload(each)), None):
        return wrong("overload", f"{CALLS} calls at once: {strange.told}", "RESOURCE_EXHAUSTED/OVERLOADED is expected")
    if not refused:
        found = f"{CALLS} calls at once, none refused, {len(ended)} answered within {CROWD_SECONDS:g} s"
        level = Level.OK if len(ended) == CALLS else Level.WARNING
        return Finding("overload", level, found, "" if level is Level.OK else "refuse at once what has to wait long")
    late = max(each.seconds for each in refused)
    found = f"{len(refused)} of {CALLS} calls refused, within {late:.2f} s, with a time to come back"
    return await _still_answers(target, request, "overload", found)


async def drain(target: Target, request: InferRequest, process: int) -> Finding:
    """SIGTERM with calls under way."""
    watch = target.watch("")
    try:
        await watch.read()
    except grpc.aio.AioRpcError as error:
        found = f"Watch of grpc.health.v1: {failure_text(from_rpc(error), target.seconds)}"
        return wrong("drain", found, "it tells when no calls are taken")
    calls = [asyncio.create_task(target.infer(request)) for _ in range(4)]
    while await _is_idle(target) and not any(call.done() for call in calls):
        pass
    os.kill(process, signal.SIGTERM)
    told = asyncio.create_task(_tells_its_end(watch))
    outcomes = await asyncio.gather(*calls)
    if bad := next((each for each in outcomes if each.error), None):
        return wrong("drain", f"a call under way ends with {bad.told}", "finish what was accepted: DRAIN_SECONDS")
    if not await told:
        return wrong("drain", "health does not say NOT_SERVING before the end", "say so first, then finish, then end")
    if not await _is_gone(process, target.seconds):
        return wrong("drain", f"process {process} does not end within {target.seconds:g} s", "end after the last call")
    return ok("drain", f"{len(calls)} calls under way are answered, health says NOT_SERVING, the process ends")


async def _is_idle(target: Target) -> bool:
    load = (await target.describe()).load
    return not load.running + load.waiting


async def _tells_its_end(watch: Any) -> bool:
    try:
        while (told := await watch.read()) is not grpc.aio.EOF:
            if told.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                return True
    except grpc.aio.AioRpcError:
        return False
    return False


async def _is_gone(process: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(0.05)
    return False


def _is_overload(outcome: Outcome) -> bool:
    error = outcome.error
    return bool(error and error.reason == "OVERLOADED" and error.retry_after)


async def _still_answers(target: Target, request: InferRequest, check: str, found: str) -> Finding:
    outcome = await target.infer(request)
    if outcome.error:
        return wrong(check, f"afterwards a call gives {outcome.told}", "what went before must leave nothing behind")
    return ok(check, found)
