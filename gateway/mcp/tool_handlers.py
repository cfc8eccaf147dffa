"""Handlers of the MCP tools."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import structlog
from mcp.types import CallToolResult, Tool

from gateway.auth.identity import CallerFactory
from gateway.core.file_references import FileResolver
from gateway.core.run_stream import RunEventFeed
from gateway.core.runs import RunOperations
from gateway.core.validation import RequestValidator
from gateway.json_decoder import decode
from gateway.mcp import rendering, schemas
from gateway.mcp.file_references import resolve_files
from gateway.mcp.run_progress import OnProgress, wait_for_end
from gateway.mcp.schemas import validate_arguments
from gateway.mcp.single_task_tools import SingleTasks
from gateway.mcp.tool_definitions import FIXED, ExposedTasks
from gateway.mcp.upload_routes import PATH
from gateway.mcp.upload_tokens import TOKEN_SECONDS, UploadTokens
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, DATA_POLICY_UNSPECIFIED
from protos.hugginggpt.v1.gateway_pb2 import ListRunsRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_PLAN, RUN_MODE_RESULTS, Run, RunSpec
from services.common.call_context import current, use_caller
from services.common.errors import NotFound, ServiceError

log = structlog.get_logger(__name__)

_POLICIES = {"local": DATA_POLICY_LOCAL, "open": DATA_POLICY_OPEN}


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    arguments: Mapping[str, Any]
    site: str
    """Scheme and host of this gateway."""
    on_progress: OnProgress

    def text(self, name: str) -> str:
        return str(self.arguments.get(name, ""))

    @property
    def wait(self) -> float:
        return float(self.arguments.get("wait_seconds", schemas.DEFAULT_WAIT_SECONDS))


@dataclass(frozen=True)
class ToolContext:
    """Dependencies of the tools."""

    runs: RunOperations
    validator: RequestValidator
    file_resolver: FileResolver
    single_tasks: SingleTasks
    upload_tokens: UploadTokens
    callers: CallerFactory
    upload_bytes: int


class ToolHandlers:
    """Calls tools for the current caller.

    Args:
        context: dependencies of the tools.
        exposed_tasks: tasks that are tools of their own.
    """

    def __init__(self, context: ToolContext, exposed_tasks: ExposedTasks) -> None:
        self._context = context
        self._exposed_tasks = exposed_tasks
        self._cancellations: set[asyncio.Task[None]] = set()
        self._handlers: Mapping[str, Callable[[Call], Awaitable[CallToolResult]]] = {
            "ask": self._ask,
            "plan": self._plan,
            "run_plan": self._run_plan,
            "get_run": self._get_run,
            "list_runs": self._list_runs,
            "cancel_run": self._cancel_run,
            "upload": self._upload,
            "tasks": self._tasks,
            "run_task": self._run_task,
        }

    @property
    def names(self) -> frozenset[str]:
        """Names of all tools, available or not."""
        return frozenset({*FIXED, *self._exposed_tasks.names})

    async def tools(self) -> list[Tool]:
        """Tools that are available now."""
        if not self._exposed_tasks.names:
            return list(FIXED.values())
        return [*FIXED.values(), *self._exposed_tasks.tools(await self._context.single_tasks.specs())]

    async def call(self, name: str, call: Call) -> CallToolResult:
        """Calls a tool; the result contains an expected error."""
        try:
            if name in FIXED:
                validate_arguments(call.arguments, FIXED[name].input_schema)
                return await self._handlers[name](call)
            return await self._call_exposed_task(name, call)
        except ServiceError as error:
            return rendering.error_result(error)

    async def cancellations_sent(self) -> None:
        """Waits until all pending cancellations are sent."""
        if self._cancellations:
            await asyncio.wait(self._cancellations)

    async def _ask(self, call: Call) -> CallToolResult:
        spec = RunSpec(request=call.text("request"), parent_run_id=call.text("previous_run_id"))
        return rendering.run_result(await self._run(spec, call), call.site)

    async def _plan(self, call: Call) -> CallToolResult:
        spec = RunSpec(request=call.text("request"), mode=RUN_MODE_PLAN)
        return rendering.plan_result(await self._run(spec, call))

    async def _run_plan(self, call: Call) -> CallToolResult:
        spec = decode(RunSpec, {"plan": call.arguments["plan"], "request": call.text("request")})
        if not spec.request:
            spec.mode = RUN_MODE_RESULTS
        return rendering.run_result(await self._run(spec, call), call.site)

    async def _run_task(self, call: Call) -> CallToolResult:
        arguments, parameters = call.arguments["arguments"], call.arguments.get("parameters", {})
        return await self._run_single_task(call.text("task"), arguments, parameters, call)

    async def _call_exposed_task(self, name: str, call: Call) -> CallToolResult:
        tool = next((tool for tool in await self.tools() if tool.name == name), None)
        if tool is None:
            raise NotFound(
                f"there is no tool {name[:100]!r}", reason="TOOL", remedy="list the tools with tools/list, or use ask"
            )
        validate_arguments(call.arguments, tool.input_schema)
        common = {"parameters", "wait_seconds", "policy"}
        arguments = {port: value for port, value in call.arguments.items() if port not in common}
        return await self._run_single_task(name, arguments, call.arguments.get("parameters", {}), call)

    async def _run_single_task(
        self, name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any], call: Call
    ) -> CallToolResult:
        with self._acting(call):
            plan = await self._context.single_tasks.plan(name, arguments, parameters, call.site, call.text("model"))
        return rendering.run_result(await self._run(RunSpec(plan=plan, mode=RUN_MODE_RESULTS), call), call.site)

    async def _get_run(self, call: Call) -> CallToolResult:
        feed = await self._context.runs.watch(call.text("run_id"), 0)
        await self._wait_for_end(feed, call)
        return rendering.run_result(await self._context.runs.get(feed.run_id), call.site, is_outcome=False)

    async def _list_runs(self, call: Call) -> CallToolResult:
        page = {"page_size": schemas.DEFAULT_RUNS, **call.arguments}
        return rendering.runs_result(await self._context.runs.list(decode(ListRunsRequest, page)))

    async def _cancel_run(self, call: Call) -> CallToolResult:
        run_id = call.text("run_id")
        await self._context.runs.cancel(run_id)
        return rendering.run_result(await self._context.runs.get(run_id), call.site, is_outcome=False)

    async def _upload(self, call: Call) -> CallToolResult:
        secret = await self._context.upload_tokens.create(call.text("name"))
        url = f"{call.site}{PATH}/{secret}"
        found = {
            "url": url,
            "method": "PUT",
            "expires_in_seconds": int(TOKEN_SECONDS),
            "largest_bytes": self._context.upload_bytes,
            "example": f"curl -T FILE {url}",
        }
        return rendering.text_result(
            f"Send the file once, within 15 minutes: curl -T FILE {url}\nThe response has its id.", found
        )

    async def _tasks(self, call: Call) -> CallToolResult:
        found = await self._context.single_tasks.describe(call.text("name"), call.text("about"))
        text = "\n".join(f"{task['name']}: {task['description']}" for task in found)
        return rendering.text_result(text or "No available task matches.", {"tasks": found})

    async def _run(self, spec: RunSpec, call: Call) -> Run:
        """Starts a run and waits for its end, for at most wait_seconds."""
        with self._acting(call):
            files = await self._files(spec, call)
            await self._context.validator.validate_run(spec, files)
            feed = await self._context.runs.start(spec)
            await self._wait_for_end(feed, call)
            return await self._context.runs.get(feed.run_id)

    async def _files(self, spec: RunSpec, call: Call) -> list[Artifact]:
        """Resolves the call's files under the data policy of the run that it continues."""
        references = call.arguments.get("files", [])
        with use_caller(await self._context.runs.continuation_caller(spec.parent_run_id if references else "")):
            return await resolve_files(self._context.file_resolver, references, "files", call.site)

    def _acting(self, call: Call) -> AbstractContextManager[None]:
        """The context of the current caller, with the call's data policy."""
        policy = _POLICIES.get(call.text("policy"), DATA_POLICY_UNSPECIFIED)
        return use_caller(self._context.callers.create(current().request_id, policy))

    async def _wait_for_end(self, feed: RunEventFeed, call: Call) -> None:
        try:
            await wait_for_end(feed, call.wait, call.on_progress)
        except asyncio.CancelledError:
            if call.arguments.get("cancel_with_call"):
                self._cancel_in_background(feed.run_id)
            raise

    def _cancel_in_background(self, run_id: str) -> None:
        """Cancels in a task of its own, because the task of the call is being cancelled."""
        task = asyncio.create_task(self._cancel(run_id), name=f"cancel-{run_id}")
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)

    async def _cancel(self, run_id: str) -> None:
        try:
            await self._context.runs.cancel(run_id)
        except ServiceError as error:
            log.warning("run not cancelled", reason=error.reason, run_id=run_id)
