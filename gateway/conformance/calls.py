"""Checks of calls: valid, invalid and forbidden ones, batches, short deadlines, cancellation, overload and SIGTERM."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from gateway.conformance import samples
from gateway.conformance.findings import Finding, Level, not_tried, ok, wrong
from gateway.conformance.target import TENANT, BatchOutcome, Outcome, Target, failure_text, is_broken_connection
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_IMAGE, MODALITY_JSON, MODALITY_TEXT, Artifact, Value
from protos.hugginggpt.v1.expert_pb2 import InferBatchItem, InferRequest, ProgressRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, ModelCard
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.artifacts import INLINE_BYTES
from services.common.errors import NotFound, from_rpc

TRAILERS = ("expert-queue", "expert-loaded", "expert-free-bytes")
_DETAILS = "in google.rpc.ErrorInfo (reason; metadata: remedy, port), sent as grpc-status-details-bin"


# ---------------------------------------------------------------- valid calls


async def answer(target: Target, spec: TaskSpec, card: ModelCard) -> tuple[Finding, Outcome]:
    """Calls a task with samples, and checks the reply."""
    check = f"{spec.name} ({card.id})"
    outcome = await target.infer_after_loading(await target.request(spec, card))
    if outcome.error and is_broken_connection(outcome.error):
        return await broken_connection(target, check), outcome
    if outcome.error:
        is_announced = card.state == MODEL_STATE_FAILED and outcome.error.reason == "LOAD_FAILED"
        is_unfit_sample = outcome.error.code is grpc.StatusCode.INVALID_ARGUMENT
        level = Level.WARNING if is_unfit_sample or is_announced else Level.WRONG
        return Finding(check, level, outcome.summary, outcome.error.remedy), outcome
    if flaw := await _reply_flaw(target, spec, card, outcome):
        return wrong(check, flaw, "a reply that fits the task's ports, with all trailers"), outcome
    return ok(check, f"{outcome.seconds:.2f} s: {', '.join(sorted(outcome.reply.outputs))}"), outcome


async def broken_connection(target: Target, check: str) -> Finding:
    """A check during which the connection broke."""
    if await target.is_reachable():
        found = "the connection broke during the call: the process restarted or closed the connection"
    else:
        found = "the process died during the call: nothing listens at its address now"
    return wrong(check, found, "a call must not end the process; read its log and exit status")


async def _reply_flaw(target: Target, spec: TaskSpec, card: ModelCard, outcome: Outcome) -> str:
    reply = outcome.reply
    ports = {port.name: port for port in spec.outputs}
    unknown = sorted(reply.outputs.keys() - ports.keys())
    missing = [port.name for port in spec.outputs if port.required and port.name not in reply.outputs]
    if unknown or missing:
        return f"the task has no output {unknown[0]}" if unknown else f"output {missing[0]} is missing"
    if card.revision and reply.revision != card.revision:
        return f"the reply is from revision {reply.revision or 'unknown'}, the card has {card.revision}"
    if absent := [name for name in TRAILERS if name not in outcome.trailer]:
        return f"the trailing metadata lacks {absent[0]}"
    for name, value in reply.outputs.items():
        if flaw := await _value_flaw(target, ports[name], value):
            return f"output {name} {flaw}"
    return ""


async def _value_flaw(target: Target, port: Port, value: Value) -> str:
    kind = value.WhichOneof("kind")
    if kind == "artifact":
        try:
            stored = await target.store.head(TENANT, value.artifact.sha256)
        except NotFound:
            return "is not in the artifact store; check that ARTIFACTS_URL is the same here and at the expert"
        return "" if stored.size_bytes == value.artifact.size_bytes else "has another size in the artifact store"
    if kind != {MODALITY_TEXT: "text", MODALITY_JSON: "json"}.get(port.modality):
        return f"is {kind or 'nothing'}"
    content = value.text or value.json
    if len(content.encode()) > INLINE_BYTES:
        return f"is inline and longer than {INLINE_BYTES} bytes"
    return "is not canonical JSON" if kind == "json" and not _is_canonical(content) else ""


def _is_canonical(text: str) -> bool:
    try:
        parsed = json.loads(text)
        return text == json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return False


# ---------------------------------------------------------------- invalid calls


async def refusals(target: Target, spec: TaskSpec, card: ModelCard) -> AsyncIterator[Finding]:
    """Sends calls that each contain one error."""
    valid = await target.request(spec, card)
    for check, request, expected, port in _invalid_calls(spec, card, valid):
        outcome = await target.infer(request)
        error = outcome.error
        if not error or (error.code.name, error.reason) != expected or (port and error.port != port):
            at = f" for port {port}" if port else ""
            yield wrong(check, outcome.summary, f"{'/'.join(expected)}{at}, {_DETAILS}")
        elif not error.remedy:
            yield wrong(check, f"{outcome.summary}: the error has no remedy", f"a remedy {_DETAILS}")
        elif TRAILERS[0] not in outcome.trailer:
            found = f"{outcome.summary}: the error has no trailing metadata"
            yield wrong(check, found, f"{', '.join(TRAILERS)}, as in a successful reply")
        else:
            yield ok(check, outcome.summary)


async def policy(target: Target, external: Sequence[tuple[TaskSpec, ModelCard]]) -> AsyncIterator[Finding]:
    """Calls external models with data that must stay in the deployment."""
    leaks = [leak for spec, card in external if (leak := await _leak(target, spec, card))]
    for leak in leaks:
        yield leak
    if external and not leaks:
        yield ok("policy", f"{len(external)} tasks with external models refuse calls of the policy local")


async def _leak(target: Target, spec: TaskSpec, card: ModelCard) -> Finding | None:
    request = await target.request(spec, card)
    for caller, metadata in (("a call with the policy local", target.local_metadata), ("a call without a policy", ())):
        outcome = await target.infer(request, metadata=metadata)
        if not outcome.error or outcome.error.reason != "POLICY":
            remedy = f"FAILED_PRECONDITION/POLICY before any data is sent, {_DETAILS}"
            return wrong(f"policy of {spec.name} ({card.id})", f"{caller}: {outcome.summary}", remedy)
        batch = await target.infer_batch(request, [_item(request)], metadata=metadata)
        reasons = [result.failure.reason for result in batch.reply.results]
        if batch.is_offered and "POLICY" not in (batch.error.reason if batch.error else "", *reasons):
            remedy = "FAILED_PRECONDITION/POLICY of the item or the call, before any data is sent"
            return wrong(f"policy of {spec.name} ({card.id})", f"{caller} by InferBatch is not refused", remedy)
    return None


InvalidCall = tuple[str, InferRequest, tuple[str, str], str]


def _invalid_calls(spec: TaskSpec, card: ModelCard, valid: InferRequest) -> Iterator[InvalidCall]:
    invalid = ("INVALID_ARGUMENT", "INVALID")
    yield "unknown task", _changed(valid, task="no-such-task"), ("NOT_FOUND", "TASK"), ""
    yield "unknown model", _changed(valid, model="no/such-model"), ("NOT_FOUND", "MODEL"), ""
    if card.revision:
        yield "other revision", _changed(valid, revision="no-such"), ("FAILED_PRECONDITION", "REVISION"), ""
    yield "unknown port", _with(valid, "no_such_port", Value(text="x")), invalid, "no_such_port"
    for port in spec.inputs:
        if port.required:
            yield f"without {port.name}", _without(valid, port.name), invalid, port.name
            if not port.many:
                other = Value(json="{}") if port.modality == MODALITY_TEXT else Value(text="x")
                yield f"other modality for {port.name}", _with(valid, port.name, other), invalid, port.name
                yield f"empty value for {port.name}", _with(valid, port.name, Value()), invalid, port.name
            if port.modality == MODALITY_IMAGE:
                absent = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=1))
                yield "absent file", _with(valid, port.name, absent), ("NOT_FOUND", "ARTIFACT"), port.name
    yield "unknown parameter", _changed(valid, parameters_json='{"no_such":1}'), invalid, ""
    for parameter in spec.parameters:
        value = samples.out_of_range(parameter)
        if value is not None:
            given = samples.parameters(spec) | {parameter.name: value}
            yield f"{parameter.name} out of range", _changed(valid, parameters_json=json.dumps(given)), invalid, ""


def _changed(request: InferRequest, **fields: Any) -> InferRequest:
    changed = InferRequest()
    changed.CopyFrom(request)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _with(request: InferRequest, port: str, value: Value) -> InferRequest:
    changed = _changed(request)
    changed.inputs[port].CopyFrom(value)
    return changed


def _without(request: InferRequest, port: str) -> InferRequest:
    changed = _changed(request)
    changed.inputs.pop(port, None)
    changed.lists.pop(port, None)
    return changed


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


async def batch(target: Target, request: InferRequest) -> Finding:
    """Sends valid items and an invalid one in one call, if the expert offers InferBatch."""
    invalid = InferBatchItem(inputs={**request.inputs, "no_such_port": Value(text="x")}, lists=request.lists)
    outcome = await target.infer_batch(request, [_item(request), invalid, _item(request)])
    if not outcome.is_offered:
        return not_tried("batch", "the expert does not offer InferBatch, which is optional")
    if outcome.error and outcome.error.reason == "TOO_LARGE":
        return not_tried("batch", outcome.error.message, outcome.error.remedy)
    if outcome.error:
        found = f"a call with one invalid item of three: {failure_text(outcome.error, target.seconds)}"
        return wrong("batch", found, "an invalid item does not affect the others: put its failure into its result")
    if flaw := _batch_flaw(outcome):
        return wrong("batch", *flaw)
    empty = await target.infer_batch(request, [])
    if not empty.error or empty.error.code is not grpc.StatusCode.INVALID_ARGUMENT:
        return wrong("batch", "a call without items succeeds", f"INVALID_ARGUMENT for port items, {_DETAILS}")
    return ok("batch", "InferBatch: two items answered, the invalid one has a failure")


def _item(request: InferRequest) -> InferBatchItem:
    return InferBatchItem(inputs=request.inputs, lists=request.lists)


def _batch_flaw(outcome: BatchOutcome) -> tuple[str, str] | None:
    """What is wrong with the results of a valid, an invalid and another valid item, and what is expected."""
    results = outcome.reply.results
    if len(results) != 3:  # noqa: PLR2004  # the number of items
        return f"{len(results)} results for 3 items", "one result per item, in the order of the items"
    first, invalid, last = results
    if failed := next((each.failure for each in (first, last) if each.HasField("failure")), None):
        found = f"a valid item next to an invalid one: {failed.reason}: {failed.message}"
        return found, "an invalid item does not affect the others"
    if not first.outputs or not last.outputs:
        return "a valid item has no outputs", "the outputs of Infer"
    if (invalid.failure.reason, invalid.failure.port) != ("INVALID", "no_such_port") or not invalid.failure.remedy:
        found = f"an item with an unknown port: {invalid.failure.reason or 'no failure'}"
        return found, "a failure with the reason INVALID, the port no_such_port, and a remedy"
    if absent := [name for name in TRAILERS if name not in outcome.trailer]:
        return f"the trailing metadata lacks {absent[0]}", f"{', '.join(TRAILERS)}, as of Infer"
    return None


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
