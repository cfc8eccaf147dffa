"""OpenAI's Batch API: routes, and the worker that carries out the requests of an input file as runs.

The orchestrator runs each request once: its idempotency key is made of the batch and the request's number. Outcomes are
stored as they end, so a gateway that takes over a batch continues where the last one stopped.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.core.files import FileService
from gateway.core.uploads import Allowance, store_file
from gateway.http.artifact_routes import request_site
from gateway.http.json_body import json_response
from gateway.http.problem import http_status, problem
from gateway.json_encoder import dumps
from gateway.json_text import loads, refuse
from gateway.openai.batch_store import LEASE_SECONDS, Batch, BatchStore, Counts, batch_errors, caller_of
from gateway.openai.chat import ChatRoutes, Completion
from gateway.openai.controllers import with_controller_policy
from gateway.openai.request_body import Fields, body
from gateway.openai.request_options import RequestOptions, read_metadata
from gateway.openai.response_projection import projection
from gateway.openai.responses import ResponseRoutes
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.task_routes import TaskRoutes
from gateway.openapi import openai_operations
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest, Overloaded, ServiceError, Unavailable
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

CHAT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/responses", "/v1/embeddings"
ENDPOINTS = (CHAT, RESPONSES, EMBEDDINGS)
MAX_BYTES = 100_000_000
MAX_REQUESTS = 50_000
"""Limits of an input file; the number is that of OpenAI's API."""

WINDOW_SECONDS = 24 * 3600
"""Seconds after which the requests that have not ended expire; idempotency keys are valid as long."""

GRACE_SECONDS = 3600.0
"""Seconds after the window in which the output files of an expired batch are still tried."""

CONCURRENT_BATCHES = 4
CONCURRENT_REQUESTS = 8
"""Requests of one batch that a gateway runs concurrently."""

POLL_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0
_MAX_ERRORS = 100
_MAX_PAGE = 100

BatchId = Annotated[str, Path(description="Id of the batch.", examples=["batch_5d1c2f8e7a9b40d3c6e1f2a3"])]


class OpenAIBatchRoutes:
    """Creates, lists, shows and cancels batches.

    Args:
        batches: stored batches.
        files: input and output files.
        adapter: holds the content of input files.
    """

    def __init__(self, batches: BatchStore, files: FileService, adapter: RunAdapter) -> None:
        self._batches = batches
        self._files = files
        self._adapter = adapter

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/batches", tags=["openai"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create_batch, methods=["POST"], **openai_operations.CREATE_BATCH)
        add("", self.list_batches, methods=["GET"], **openai_operations.BATCHES)
        add("/{batch_id}", self.get_batch, methods=["GET"], **openai_operations.BATCH)
        add("/{batch_id}/cancel", self.cancel_batch, methods=["POST"], **openai_operations.BATCH)
        return router

    async def create_batch(self, request: Request) -> Response:
        """Carries out the requests of an uploaded JSONL file, compatible with OpenAI's API.

        Each line has `custom_id`, `method` (POST), `url` (the endpoint of the batch) and `body`. Files of pipelines are
        processed by `/v1/pipeline-batches`.
        """
        sent = await body(request)
        endpoint = sent.text("endpoint")
        if endpoint not in ENDPOINTS:
            refuse("endpoint", f"is {endpoint[:100]!r}", remedy=f"use one of {', '.join(ENDPOINTS)}")
        if sent.text("completion_window", "24h") != "24h":
            refuse("completion_window", "is not supported", remedy="use 24h")
        file = await self._files.get(sent.text("input_file_id"))
        if file.artifact.size_bytes > MAX_BYTES:
            refuse("input_file_id", "is too large", remedy=f"send up to {MAX_BYTES / 1e6:g} MB per batch")
        metadata = dumps(read_metadata(sent.map("metadata"))).decode()
        details = {"metadata": metadata, "site": request_site(request)}
        batch = await self._batches.add(endpoint, file.id, file.artifact, details)
        await self._adapter.runs.hold(batch.id, [file.artifact.sha256])
        return await self._shown(batch)

    async def list_batches(
        self,
        after: Annotated[str, Query(description="Id of the last batch of the previous page.")] = "",
        limit: Annotated[int, Query(ge=1, le=_MAX_PAGE, description="Maximum number of batches in the page.")] = 20,
    ) -> Response:
        """Lists batches, newest first."""
        found, more = await self._batches.page(limit, after)
        data = [batch_object(batch, await self._batches.counts(batch.id)) for batch in found]
        ends = {"first_id": found[0].id, "last_id": found[-1].id} if found else {"first_id": None, "last_id": None}
        return json_response({"object": "list", "data": data, **ends, "has_more": more})

    async def get_batch(self, batch_id: BatchId) -> Response:
        """Returns a batch with the counts of its requests."""
        return await self._shown(await self._batches.get(batch_id))

    async def cancel_batch(self, batch_id: BatchId) -> Response:
        """Starts no further requests of a batch; those that run end. No effect on an ended batch."""
        batch = await self._batches.get(batch_id)
        if batch.state != "cancelling":
            await self._batches.update(batch.id, state="cancelling", cancelled=True)
        return await self._shown(await self._batches.get(batch_id))

    async def _shown(self, batch: Batch) -> Response:
        return json_response(batch_object(batch, await self._batches.counts(batch.id)))


def batch_object(batch: Batch, counts: Counts) -> dict[str, Any]:
    """A batch as in OpenAI's API."""
    errors = batch_errors(batch)
    times = {f"{state}_at": _second(batch.ended) if batch.state == state else None for state in _END_STATES}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.state,
        "output_file_id": batch.output_file_id or None,
        "error_file_id": batch.error_file_id or None,
        "created_at": int(batch.created),
        "in_progress_at": _second(batch.started),
        "expires_at": int(batch.created) + WINDOW_SECONDS,
        "cancelling_at": _second(batch.cancelled),
        **times,
        "request_counts": {"total": batch.total, "completed": counts.completed, "failed": counts.failed},
        "metadata": json.loads(batch.metadata),
    }


_END_STATES = ("completed", "failed", "expired", "cancelled")


def _second(time: float | None) -> int | None:
    return None if time is None else int(time)


@dataclass(frozen=True)
class Endpoints:
    """The routes whose requests batches may have."""

    chat: ChatRoutes
    responses: ResponseRoutes
    media: TaskRoutes

    async def prepare(self, endpoint: str, sent: Fields) -> tuple[RunSpec, RequestOptions]:
        """Converts the body of a request to a run.

        Raises:
            ServiceError: the request is invalid.
        """
        if sent.flag("stream") or sent.flag("background"):
            raise InvalidRequest(
                "stream and background do not apply in a batch", remedy="leave them out", port="stream"
            )
        if endpoint == CHAT:
            return await self.chat.prepare(sent)
        if endpoint == RESPONSES:
            return await self.responses.prepare(sent)
        return await self.media.prepare_embeddings(sent)


class BatchWorker:
    """Carries out batches; several gateways share them.

    Args:
        batches: stored batches.
        files: receives output files.
        store: artifact store.
        adapter: starts runs.
        endpoints: routes of the requests.
    """

    def __init__(
        self, batches: BatchStore, files: FileService, store: ArtifactStore, adapter: RunAdapter, endpoints: Endpoints
    ) -> None:
        self._batches = batches
        self._files = files
        self._store = store
        self._adapter = adapter
        self._endpoints = endpoints
        self._active: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Works within the block; batches interrupted at its end are continued by any gateway."""
        polling = asyncio.create_task(supervise(self._poll, name="OpenAI batches"), name="openai-batches")
        try:
            yield
        finally:
            tasks = [polling, *self._active]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self) -> None:
        while True:
            try:
                while len(self._active) < CONCURRENT_BATCHES and (batch := await self._batches.claim()):
                    task = asyncio.create_task(self._work(batch), name=batch.id)
                    self._active.add(task)
                    task.add_done_callback(self._active.discard)
            except ServiceError as error:
                log.warning("cannot read batches; retrying", error=error.message)
            await asyncio.sleep(POLL_SECONDS)

    async def _work(self, batch: Batch) -> None:
        """Carries out a batch to its end; after a temporary failure it is claimed again when its lease ends."""
        renewal = asyncio.create_task(self._renew(batch), name=f"lease-{batch.id}")
        try:
            with use_caller(caller_of(batch)):
                await self._carry_out(batch)
        except ServiceError as error:
            log.warning("batch interrupted; it is continued later", batch_id=batch.id, error=error.message)
            await self._give_up_old(batch)
        except Exception:
            log.exception("unexpected error in a batch; it is continued later", batch_id=batch.id)
            await self._give_up_old(batch)
        finally:
            renewal.cancel()
            await asyncio.wait([renewal])

    async def _give_up_old(self, batch: Batch) -> None:
        """Ends a batch that cannot be finished, such as one whose input file is lost."""
        try:
            if await self._batches.age(batch) > WINDOW_SECONDS + GRACE_SECONDS:
                await self._batches.update(batch.id, state="failed", ended=True)
        except ServiceError as error:
            log.warning("cannot end a batch", batch_id=batch.id, error=error.message)

    async def _renew(self, batch: Batch) -> None:
        while True:
            try:
                await self._batches.renew(batch.id)
            except ServiceError as error:
                log.warning("cannot renew the lease of a batch", batch_id=batch.id, error=error.message)
            await asyncio.sleep(LEASE_SECONDS / 3)

    async def _carry_out(self, batch: Batch) -> None:
        content = await self._store.get(batch.tenant, batch.artifact.sha256)
        requests, errors = await asyncio.to_thread(_read_requests, content, batch.endpoint)
        if errors:
            await self._batches.update(batch.id, state="failed", errors=json.dumps(errors), ended=True)
            return
        if batch.state == "validating":
            await self._batches.update(batch.id, state="in_progress", started=True, total=len(requests))
        done = await self._batches.recorded(batch.id)
        permits = asyncio.Semaphore(CONCURRENT_REQUESTS)
        remaining = WINDOW_SECONDS - (await self._batches.age(batch))
        reason = "batch_cancelled"
        try:
            async with asyncio.timeout(max(remaining, 0.0)), asyncio.TaskGroup() as group:
                for number, request in enumerate(requests):
                    if number in done:
                        continue
                    await permits.acquire()
                    if await self._batches.renew(batch.id) == "cancelling":
                        break
                    task = group.create_task(self._request(batch, number, request))
                    task.add_done_callback(lambda _: permits.release())
        except TimeoutError:
            reason = "batch_expired"
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        await self._finish(batch, requests, reason)

    async def _request(self, batch: Batch, number: int, request: Mapping[str, Any]) -> None:
        """Runs a request to its end; waits while the deployment or the caller's limits allow no further run."""
        pause = 0.5
        while True:
            try:
                code, run_id, content = 200, *(await self._run(batch, number, Fields(request["body"])))
                break
            except (Overloaded, Unavailable) as error:
                requested = error.retry_after.total_seconds() if error.retry_after else 0.0
                await asyncio.sleep(max(pause, min(requested, _MAX_PAUSE_SECONDS)))
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
            except ServiceError as error:
                code, run_id, content = http_status(error), "", {"error": problem(error)["error"]}
                break
        reply = {"status_code": code, "request_id": run_id, "body": content}
        line = {"id": f"{batch.id}_{number}", "custom_id": request["custom_id"], "response": reply, "error": None}
        await self._batches.record(batch.id, number, line, failed=code >= 400)  # noqa: PLR2004  # an HTTP status

    async def _run(self, batch: Batch, number: int, sent: Fields) -> tuple[str, dict[str, Any]]:
        """Returns the run of a request, and the body of its response."""
        with use_caller(with_controller_policy(current(), sent.text("model"))):
            spec, options = await self._endpoints.prepare(batch.endpoint, sent)
            source = await self._adapter.start_background(spec, options, f"{batch.id}-{number}")
            chat, response, fold = Completion(batch.site), projection(spec, batch.site), RunFold(ignore_unplanned=True)
            take = {CHAT: chat.take, RESPONSES: response.take, EMBEDDINGS: fold.apply}[batch.endpoint]
            try:
                while (event := await source.read()) is not None:
                    take(event)
            finally:
                await source.close()
            if batch.endpoint == CHAT:
                return source.run_id, chat.completion()
            if batch.endpoint == RESPONSES:
                return source.run_id, response.response()
            return source.run_id, await self._endpoints.media.embeddings(sent, fold.run)

    async def _finish(self, batch: Batch, requests: Sequence[Mapping[str, Any]], reason: str) -> None:
        """Records the requests that were not run, writes the output files and ends the batch."""
        done = await self._batches.recorded(batch.id)
        for number, request in enumerate(requests):
            if number not in done:
                error = {"code": reason, "message": "this request was not run before the batch ended"}
                line = {"id": f"{batch.id}_{number}", "custom_id": request["custom_id"], "response": None}
                await self._batches.record(batch.id, number, {**line, "error": error}, failed=True)
        ended = "expired" if reason == "batch_expired" else "cancelled"
        state = "completed" if len(done) == len(requests) else ended
        counts = await self._batches.counts(batch.id)
        output = await self._file(batch, "output", failed=False) if counts.completed else ""
        errors = await self._file(batch, "errors", failed=True) if counts.failed else ""
        await self._batches.update(batch.id, state=state, output_file_id=output, error_file_id=errors, ended=True)
        await self._adapter.runs.hold(batch.id, [])

    async def _file(self, batch: Batch, name: str, *, failed: bool) -> str:
        lines, allowance = self._batches.lines(batch.id, failed=failed), Allowance(10 * MAX_BYTES)
        artifact = await store_file(self._store, batch.tenant, f"{batch.id}_{name}.jsonl", lines, allowance)
        return (await self._files.add(artifact, "batch_output")).id


def _read_requests(content: bytes, endpoint: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reads the lines of an input file; returns its requests, and its errors as in OpenAI's API."""
    requests, errors, ids = list[dict[str, Any]](), list[dict[str, Any]](), set[str]()
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip() or len(errors) >= _MAX_ERRORS:
            continue
        try:
            requests.append(_read_request(line, endpoint, ids))
        except InvalidRequest as error:
            errors.append({"code": error.reason.lower(), "line": number, "message": error.message, "param": error.port})
    if not requests and not errors:
        errors.append({"code": "empty_file", "line": None, "message": "the file has no request", "param": None})
    if len(requests) > MAX_REQUESTS:
        message = f"the file has more than {MAX_REQUESTS} requests"
        errors.append({"code": "too_large", "line": None, "message": message, "param": None})
    return requests, errors


def _read_request(line: bytes, endpoint: str, ids: set[str]) -> dict[str, Any]:
    sent = Fields(loads(line, "the line"))
    custom_id = sent.text("custom_id")
    if not custom_id or custom_id in ids:
        refuse("custom_id", "is missing or used twice", remedy="give each request its own custom_id")
    if sent.text("method") != "POST" or sent.text("url") != endpoint:
        refuse("url", f"and method are not POST {endpoint}", remedy="send requests to the endpoint of the batch only")
    ids.add(custom_id)
    sent.map("body")
    return {"custom_id": custom_id, "body": sent.get("body") or {}}
