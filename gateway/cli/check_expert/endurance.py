"""Checks of an expert under short deadlines, cancelled calls, overload and SIGTERM."""

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

OVERLOAD_CALLS = 200
OVERLOAD_SECONDS = 20.0
"""Time after which the calls of the overload check are cancelled."""

SHORT_CALLS, SHORT_SECONDS = 8, 0.001
CANCELLED_CALLS = 3

_OVERLOADED = "RESOURCE_EXHAUSTED/OVERLOADED with google.rpc.RetryInfo"


async def deadlines(target: Target, request: InferRequest) -> Finding:
    """Sends calls whose deadline passes before they can be answered."""
    outcomes = [await target.infer(request, SHORT_SECONDS) for _ in range(SHORT_CALLS)]
    unexpected = [each for each in outcomes if each.error and each.error.code is not grpc.StatusCode.DEADLINE_EXCEEDED]
    if unexpected:
        return wrong("deadline", f"a call with a deadline of 1 ms: {unexpected[0].summary}", "DEADLINE_EXCEEDED")
    return await _still_answers(
        target, request, "deadline", f"answers after {SHORT_CALLS} calls with a deadline of 1 ms"
    )


async def cancellation(target: Target, request: InferRequest, typical_seconds: float) -> Finding:
    """Cancels some calls halfway; another must still be answered."""
    remaining = target.start(request)
    calls = [target.start(request) for _ in range(CANCELLED_CALLS)]
    await asyncio.sleep(min(typical_seconds / 2, 0.5))
    for call in calls:
        call.cancel()
    try:
        await remaining
    except grpc.aio.AioRpcError as error:
        found = f"the call that was not cancelled: {failure_text(from_rpc(error), target.seconds)}"
        return wrong("cancel", found, "other calls are not affected by a cancelled one")
    return await _still_answers(target, request, "cancel", f"{CANCELLED_CALLS} calls cancelled, the other one answered")


async def progress_stream(target: Target) -> Finding:
    """Requests the progress of an unknown call."""
    remedy = "a Progress stream that ignores unknown call ids and ends"
    try:
        async with asyncio.timeout(5):
            events = [event async for event in target.stub.Progress(ProgressRequest(call_ids=["no-such-call"]))]
    except TimeoutError:
        return wrong("progress", "the stream does not end for an unknown call", remedy)
    except grpc.aio.AioRpcError as error:
        return wrong("progress", failure_text(from_rpc(error), target.seconds), remedy)
    if events:
        return wrong("progress", "the stream has events of an unknown call", remedy)
    return ok("progress", "the stream ends when its calls have ended")


async def overload(target: Target, request: InferRequest) -> Finding:
    """Sends more concurrent calls than an expert accepts."""
    calls = [asyncio.create_task(target.infer(request)) for _ in range(OVERLOAD_CALLS)]
    await asyncio.wait(calls, timeout=OVERLOAD_SECONDS)
    ended = [call.result() for call in calls if call.done()]
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    refused = [each for each in ended if each.error]
    if unexpected := next((each for each in refused if not _is_overload(each)), None):
        return wrong("overload", f"{OVERLOAD_CALLS} concurrent calls: {unexpected.summary}", _OVERLOADED)
    if not refused:
        found = f"{OVERLOAD_CALLS} concurrent calls, none refused, {len(ended)} answered within {OVERLOAD_SECONDS:g} s"
        level = Level.OK if len(ended) == OVERLOAD_CALLS else Level.WARNING
        return Finding(
            "overload", level, found, "" if level is Level.OK else "refuse calls at once that would wait long"
        )
    slowest = max(each.seconds for each in refused)
    found = f"{len(refused)} of {OVERLOAD_CALLS} calls refused within {slowest:.2f} s with a retry delay"
    return await _still_answers(target, request, "overload", found)


async def drain(target: Target, request: InferRequest, process: int) -> Finding:
    """Sends SIGTERM while calls are active."""
    watch = target.watch("")
    try:
        await watch.read()
        return await _drain_watched(target, request, process, watch)
    except grpc.aio.AioRpcError as error:
        found = f"Watch of grpc.health.v1: {failure_text(from_rpc(error), target.seconds)}"
        return wrong("drain", found, "Watch reports NOT_SERVING during the drain")
    finally:
        watch.cancel()


async def _drain_watched(target: Target, request: InferRequest, process: int, watch: Any) -> Finding:
    calls = [asyncio.create_task(target.infer(request)) for _ in range(4)]
    while await _is_idle(target) and not any(call.done() for call in calls):
        pass
    os.kill(process, signal.SIGTERM)
    not_serving = asyncio.create_task(_reports_not_serving(watch))
    outcomes = await asyncio.gather(*calls)
    if failed := next((each for each in outcomes if each.error), None):
        return wrong("drain", f"an active call: {failed.summary}", "accepted calls finish within DRAIN_SECONDS")
    if not await not_serving:
        return wrong(
            "drain",
            "health does not report NOT_SERVING before the process ends",
            "report NOT_SERVING, finish the calls, exit",
        )
    if not await _is_gone(process, target.seconds):
        return wrong("drain", f"process {process} still runs after {target.seconds:g} s", "exit after the last call")
    return ok("drain", f"{len(calls)} active calls answered, health NOT_SERVING, process ended")


async def _is_idle(target: Target) -> bool:
    load = (await target.describe()).load
    return not load.running + load.waiting


async def _reports_not_serving(watch: Any) -> bool:
    try:
        while (reply := await watch.read()) is not grpc.aio.EOF:
            if reply.status == health_pb2.HealthCheckResponse.NOT_SERVING:
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
        return wrong(check, f"a call afterwards: {outcome.summary}", "earlier calls do not affect later ones")
    return ok(check, found)
