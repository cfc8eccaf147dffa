"""The services with an LLM, with a failing LLM, and without one; the LLM is a scripted HTTP server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import ScriptedLLM, ScriptedReply, StalledReply
from tests.fakes.llm.plausible import ANSWER_START, PlausibleScript
from tests.system.conftest import ANY_PORTS, ROOT, CommandResult, LocalStack, environment, start_local_stack

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
REQUEST = "Read the text in this image and tell me whether it sounds happy"
TASKS = ["image-to-text", "text-classification"]
OUTSIDE = "the data policy of this request does not allow the external LLM scripted"
ENDED_EARLY = "the LLM scripted ended its answer too early"
UNREACHABLE = "the LLM scripted cannot be reached"
KINDS = (
    "run_accepted",
    "plan_note",
    "task_planned",
    "plan_completed",
    "task_selected",
    "task_started",
    "task_progress",
    "attempt_failed",
    "task_ended",
    "answer_chunk",
    "run_ended",
)


@asynccontextmanager
async def serve_local_stack(home: Path, base_url: str, **settings: str) -> AsyncIterator[LocalStack]:
    """Starts a local stack that uses the LLM at the address."""
    stack_settings = {"LLM_BASE_URL": base_url, "LLM_MODEL": "scripted", "LLM_RETRY_SECONDS": "0.01", **settings}
    local_stack = start_local_stack(home, **stack_settings)
    running_stack = await asyncio.to_thread(local_stack.__enter__)
    try:
        yield running_stack
    finally:
        await asyncio.to_thread(local_stack.__exit__, None, None, None)


async def ask_twice(local_stack: LocalStack, *options: str) -> tuple[Any, CommandResult]:
    """Output of `ask --json`, and of `ask` for people."""
    files = ["--file", str(SIGN), "--out", str(local_stack.home / "out")]
    text_output = await asyncio.to_thread(local_stack.run_cli, "ask", REQUEST, *files, *options)
    json_output = await asyncio.to_thread(local_stack.run_cli, "ask", REQUEST, *files, *options, "--json")
    assert text_output.status == 0, text_output.err + json_output.err
    assert json_output.status == 0, text_output.err + json_output.err
    return json.loads(json_output.out), text_output


async def run_events(local_stack: LocalStack, on_event: Callable[[str], Any]) -> list[Any]:
    """Reads the events of a run over HTTP, and reports the kind of each."""
    events = []
    async with (
        httpx.AsyncClient(base_url=local_stack.url, timeout=60, trust_env=False) as http,
        http.stream(
            "POST",
            "/v1/runs",
            files=[("spec", (None, json.dumps({"request": REQUEST}))), ("file", (SIGN.name, SIGN.read_bytes()))],
            headers={"Accept": "text/event-stream"},
        ) as reply,
    ):
        async for line in reply.aiter_lines():
            if line.startswith("data:"):
                events.append(json.loads(line.removeprefix("data:")))
                await on_event(next(kind for kind in events[-1] if kind in KINDS))
    return events


def events_of_kind(events: list[Any], kind: str) -> list[Any]:
    return [event[kind] for event in events if kind in event]


def answer(events: list[Any]) -> str:
    return "".join(chunk.get("text", "") for chunk in events_of_kind(events, "answer_chunk"))


def decisions_of(events: list[Any]) -> tuple[Any, Any]:
    """Decisions of the planner and the responder."""
    (plan,) = events_of_kind(events, "plan_completed")
    (answer_decision,) = [chunk["decision"] for chunk in events_of_kind(events, "answer_chunk") if "decision" in chunk]
    return plan["decision"], answer_decision


def is_plan(body: Any) -> bool:
    return bool(body.get("response_format", {}).get("json_schema", {}).get("name") == "plan")


async def test_llm_plans_and_answers(tmp_path: Path) -> None:
    prices = json.dumps({"scripted": {"input": 1, "output": 1}})
    async with (
        ScriptedLLM.serving(PlausibleScript()) as llm,
        serve_local_stack(tmp_path, llm.base_url, LLM_INTERNAL="true", LLM_PRICES=prices) as local_stack,
    ):
        result, text_output = await ask_twice(local_stack, "--policy", "local")
    assert [task["task"] for task in result["plan"]] == TASKS
    plan, written = result["decisions"]["plan"], result["decisions"]["answer"]
    assert plan["controller"] == "llm"
    assert plan["llm_model"] == "scripted"
    assert "fell_back_because" not in plan
    assert written["controller"] == "llm"
    assert written["llm_model"] == "scripted"
    assert "fell_back_because" not in written
    assert result["answer"].startswith(ANSWER_START)
    for counted in ("input_tokens", "output_tokens"):
        assert result["usage"][counted] == plan["usage"][counted] + written["usage"][counted] > 0
    assert result["usage"]["cost"] == pytest.approx(plan["usage"]["cost"] + written["usage"]["cost"])
    assert "planned by the LLM scripted\n" in text_output.err
    assert "answer written by the LLM scripted\n" in text_output.err


async def test_local_policy_sends_nothing_to_an_external_llm(tmp_path: Path) -> None:
    async with ScriptedLLM.serving(PlausibleScript()) as llm, serve_local_stack(tmp_path, llm.base_url) as local_stack:
        result, text_output = await ask_twice(local_stack, "--policy", "local")
        assert llm.requests == []
        assert llm.connections == 0
        allowed, _ = await ask_twice(local_stack, "--policy", "open")
    for controller, decision in zip(("embedded", "composed"), result["decisions"].values(), strict=True):
        assert decision["controller"] == controller
        assert decision["fell_back_because"] == OUTSIDE
    assert f"planned by the embedded planner: {OUTSIDE}\n" in text_output.err
    assert allowed["decisions"]["plan"]["controller"] == "llm"
    assert [task["task"] for task in result["plan"]] == [task["task"] for task in allowed["plan"]] == TASKS


async def test_unreachable_llm_falls_back_and_is_reported(tmp_path: Path) -> None:
    async with serve_local_stack(tmp_path, "http://127.0.0.1:9/v1", LLM_INTERNAL="true") as local_stack:
        result, text_output = await ask_twice(local_stack)
    assert [task["task"] for task in result["plan"]] == TASKS
    assert result["decisions"]["plan"]["controller"] == "embedded"
    assert result["decisions"]["answer"]["controller"] == "composed"
    assert f"planned by the embedded planner: {UNREACHABLE}\n" in text_output.err
    assert f"answer composed from the results: {UNREACHABLE}\n" in text_output.err
    assert "so happy" in text_output.out


async def test_llm_failure_during_planning_falls_back(tmp_path: Path) -> None:
    def stall_after_first_task(body: Any) -> ScriptedReply:
        complete = PlausibleScript()(body)
        return StalledReply(complete.text[: complete.text.index("}, {") + len("}, {")]) if is_plan(body) else complete

    async with (
        ScriptedLLM.serving(stall_after_first_task) as llm,
        serve_local_stack(tmp_path, llm.base_url, LLM_INTERNAL="true") as local_stack,
    ):

        async def stop_llm(kind: str) -> None:
            if kind == "task_planned":
                await llm.stop()

        events = await run_events(local_stack, stop_llm)
    assert [planned["task"]["task"] for planned in events_of_kind(events, "task_planned")] == TASKS
    assert events_of_kind(events, "run_ended")[0]["state"] == "completed"
    (note,) = events_of_kind(events, "plan_note")
    assert note["kind"] == "fell_back"
    assert ENDED_EARLY in note["text"]
    plan, answer_decision = decisions_of(events)
    assert plan["controller"] == "embedded"
    assert plan["llm_model"] == "scripted"
    assert plan["fell_back_because"] == ENDED_EARLY
    assert answer_decision["controller"] == "composed"
    assert answer_decision["fell_back_because"] == UNREACHABLE
    assert "so happy" in answer(events)


async def test_llm_failure_between_plan_and_answer_falls_back(tmp_path: Path) -> None:
    async with (
        ScriptedLLM.serving(PlausibleScript()) as llm,
        serve_local_stack(tmp_path, llm.base_url, LLM_INTERNAL="true") as local_stack,
    ):

        async def stop_llm(kind: str) -> None:
            if kind == "plan_completed":
                await llm.stop()

        events = await run_events(local_stack, stop_llm)
    assert events_of_kind(events, "run_ended")[0]["state"] == "completed"
    plan, answer_decision = decisions_of(events)
    assert plan["controller"] == "llm"
    assert "fell_back_because" not in plan
    assert answer_decision["controller"] == "composed"
    assert answer_decision["llm_model"] == "scripted"
    assert answer_decision["fell_back_because"] == UNREACHABLE
    assert "so happy" in answer(events)


async def test_llm_failure_during_answer_is_completed_by_template(tmp_path: Path) -> None:
    def stall_in_answer(body: Any) -> ScriptedReply:
        return PlausibleScript()(body) if is_plan(body) else StalledReply("The sign says")

    async with (
        ScriptedLLM.serving(stall_in_answer) as llm,
        serve_local_stack(tmp_path, llm.base_url, LLM_INTERNAL="true") as local_stack,
    ):

        async def stop_llm(kind: str) -> None:
            if kind == "answer_chunk":
                await llm.stop()

        events = await run_events(local_stack, stop_llm)
    assert events_of_kind(events, "run_ended")[0]["state"] == "completed"
    plan, answer_decision = decisions_of(events)
    assert plan["controller"] == "llm"
    assert answer_decision["controller"] == "composed"
    assert answer_decision["fell_back_because"] == ENDED_EARLY
    assert answer(events).startswith("The sign says")
    assert "so happy" in answer(events)


def test_embedded_controllers_are_used_without_llm(local_stack: LocalStack) -> None:
    run = local_stack.ask(REQUEST, SIGN)
    decisions = run["decisions"]
    assert decisions["plan"]["controller"] == "embedded"
    assert decisions["answer"]["controller"] == "composed"
    assert not any("fell_back_because" in decision for decision in decisions.values())
    assert {result["decision"]["controller"] for result in run["results"]} == {"rank"}
    assert run["usage"]["input_tokens"] == 0


def test_llm_url_without_model_is_a_configuration_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.local", *ANY_PORTS]
    settings = environment(tmp_path, LLM_BASE_URL="http://127.0.0.1:9/v1", LOG_FORMAT="json")
    process = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=30, check=False)
    (line,) = process.stderr.splitlines()
    assert process.returncode == 1
    assert process.stdout == ""
    assert "the settings of the planner's LLM" in json.loads(line)["error"]
    assert "hugginggpt doctor" in json.loads(line)["remedy"]
