"""What the tools do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import structlog
from mcp.types import CallToolResult, Tool

from gateway.admission import Admission
from gateway.auth.caller import CallerFactory
from gateway.json_decoder import decode
from gateway.mcp import rendering, schemas
from gateway.mcp.argument_validation import checked
from gateway.mcp.file_references import References
from gateway.mcp.run_progress import Tell, followed
from gateway.mcp.single_task_tools import Singles
from gateway.mcp.tool_definitions import FIXED, Chosen
from gateway.mcp.upload_routes import PATH
from gateway.mcp.upload_tokens import GRANT_SECONDS, Grants
from gateway.run_stream import RunEventFeed
from gateway.runs import Runs
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, DATA_POLICY_UNSPECIFIED
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
    """Scheme and host under which this gateway is known."""
    tell: Tell

    def text(self, name: str) -> str:
        return str(self.arguments.get(name, ""))

    @property
    def wait(self) -> float:
        return float(self.arguments.get("wait_seconds", schemas.DEFAULT_WAIT))


@dataclass(frozen=True)
class Means:
    """What the tools stand on."""

    runs: Runs
    admission: Admission
    references: References
    singles: Singles
    grants: Grants
    callers: CallerFactory
    upload_bytes: int


class Toolbox:
    """Calls tools for the current caller.

    Args:
        means: what they stand on.
        chosen: single tasks that are tools of their own.
    """

    def __init__(self, means: Means, chosen: Chosen) -> None:
        self._means = means
        self._chosen = chosen
        self._stopping: set[asyncio.Task[None]] = set()
        self._uses: Mapping[str, Callable[[Call], Awaitable[CallToolResult]]] = {
            "ask": self._ask,
            "plan": self._plan,
            "run_plan": self._run_plan,
            "get_run": self._get_run,
            "cancel_run": self._cancel_run,
            "upload": self._upload,
            "tasks": self._tasks,
            "run_task": self._run_task,
        }

    @property
    def names(self) -> frozenset[str]:
        """Of all tools there may ever be."""
        return frozenset({*FIXED, *self._chosen.names})

    async def tools(self) -> list[Tool]:
        """All there are now."""
        if not self._chosen.names:
            return list(FIXED.values())
        return [*FIXED.values(), *self._chosen.tools(await self._means.singles.specs())]

    async def call(self, name: str, call: Call) -> CallToolResult:
        """What a tool gives; why not, if it does not."""
        try:
            if name in FIXED:
                checked(call.arguments, FIXED[name].input_schema)
                return await self._uses[name](call)
            return await self._own(name, call)
        except ServiceError as error:
            return rendering.refused(error)

    async def settled(self) -> None:
        """Waits until runs have been told to stop."""
        if self._stopping:
            await asyncio.wait(self._stopping)

    async def _ask(self, call: Call) -> CallToolResult:
        spec = RunSpec(request=call.text("request"), parent_run_id=call.text("previous_run_id"))
        return rendering.told(await self._outcome(spec, call), call.site)

    async def _plan(self, call: Call) -> CallToolResult:
        spec = RunSpec(request=call.text("request"), mode=RUN_MODE_PLAN)
        return rendering.planned(await self._outcome(spec, call))

    async def _run_plan(self, call: Call) -> CallToolResult:
        spec = decode(RunSpec, {"plan": call.arguments["plan"], "request": call.text("request")})
        if not spec.request:
            spec.mode = RUN_MODE_RESULTS
        return rendering.told(await self._outcome(spec, call), call.site)

    async def _run_task(self, call: Call) -> CallToolResult:
        arguments, parameters = call.arguments["arguments"], call.arguments.get("parameters", {})
        return await self._single(call.text("task"), arguments, parameters, call)

    async def _own(self, name: str, call: Call) -> CallToolResult:
        tool = next((tool for tool in await self.tools() if tool.name == name), None)
        if tool is None:
            raise NotFound(f"there is no tool {name[:100]!r}", reason="TOOL", remedy="see tools/list; try ask")
        checked(call.arguments, tool.input_schema)
        apart = {"parameters", "wait_seconds", "policy"}
        arguments = {port: value for port, value in call.arguments.items() if port not in apart}
        return await self._single(name, arguments, call.arguments.get("parameters", {}), call)

    async def _single(
        self, name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any], call: Call
    ) -> CallToolResult:
        with self._acting(call):
            plan = await self._means.singles.plan(name, arguments, parameters, call.site, call.text("model"))
        return rendering.told(await self._outcome(RunSpec(plan=plan, mode=RUN_MODE_RESULTS), call), call.site)

    async def _get_run(self, call: Call) -> CallToolResult:
        feed = await self._means.runs.watch(call.text("run_id"), 0)
        await self._followed(feed, call)
        return rendering.told(await self._means.runs.get(feed.run_id), call.site, asked_for=False)

    async def _cancel_run(self, call: Call) -> CallToolResult:
        run_id = call.text("run_id")
        await self._means.runs.cancel(run_id)
        return rendering.told(await self._means.runs.get(run_id), call.site, asked_for=False)

    async def _upload(self, call: Call) -> CallToolResult:
        secret = await self._means.grants.give(call.text("name"))
        url = f"{call.site}{PATH}/{secret}"
        found = {
            "url": url,
            "method": "PUT",
            "expires_in_seconds": int(GRANT_SECONDS),
            "largest_bytes": self._means.upload_bytes,
            "example": f"curl -T FILE {url}",
        }
        return rendering.facts(
            f"Send the file once, within 15 minutes: curl -T FILE {url}\nThe answer has its id.", found
        )

    async def _tasks(self, call: Call) -> CallToolResult:
        found = await self._means.singles.listed(call.text("name"), call.text("about"))
        words = "\n".join(f"{task['name']}: {task['description']}" for task in found)
        return rendering.facts(words or "There is no such task now.", {"tasks": found})

    async def _outcome(self, spec: RunSpec, call: Call) -> Run:
        """A new run, once it has ended or the time is over."""
        with self._acting(call):
            files = await self._files(spec, call)
            await self._means.admission.admit(spec, files)
            feed = await self._means.runs.start(spec)
            await self._followed(feed, call)
            return await self._means.runs.get(feed.run_id)

    async def _files(self, spec: RunSpec, call: Call) -> list[Artifact]:
        """What the call brings: what is to follow on a run that keeps its data in is asked for nowhere outside."""
        given = call.arguments.get("files", [])
        with use_caller(await self._means.runs.continuation_caller(spec.parent_run_id if given else "")):
            return await self._means.references.artifacts(given, "files", call.site)

    def _acting(self, call: Call) -> AbstractContextManager[None]:
        """For the current caller, under the policy the call asks for."""
        policy = _POLICIES.get(call.text("policy"), DATA_POLICY_UNSPECIFIED)
        return use_caller(self._means.callers.create(current().request_id, policy))

    async def _followed(self, feed: RunEventFeed, call: Call) -> None:
        try:
            await followed(feed, call.wait, call.tell)
        except asyncio.CancelledError:
            if call.arguments.get("cancel_with_call"):
                self._stop(feed.run_id)
            raise

    def _stop(self, run_id: str) -> None:
        """In a task of its own: the call that it is done for has been cancelled."""
        task = asyncio.create_task(self._stopped(run_id), name=f"stop-{run_id}")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stopped(self, run_id: str) -> None:
        try:
            await self._means.runs.cancel(run_id)
        except ServiceError as error:
            log.warning("a run was not stopped", reason=error.reason, run_id=run_id)
