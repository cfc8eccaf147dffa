"""References of the end-to-end benchmark: times of the scripted LLM, critical paths, LLM calls of JARVIS."""

import json

import pytest

from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.client import RunTimings
from tests.bench.endtoend.controllers import CONTROLLERS, SHAPES, Controller
from tests.bench.endtoend.deployment import DELAYED_TASK, delayed_answer, serve_scripted_llm
from tests.bench.endtoend.plain import PlainClient
from tests.bench.endtoend.section import makespan_row
from tests.bench.peers.makespan import SCRIPTS, overhead_row
from tests.bench.shapes import TASK, Script
from tests.fakes import FakeExpert, card
from tests.fakes.llm.http_reply import cut
from tests.fakes.llm.scripted_replies import TextReply

CLOCK_SECONDS = 0.005
"""Sleeps may be shorter by the resolution of timers."""
BY_NAME = {controller.name: controller for controller in CONTROLLERS}


@pytest.mark.parametrize("script", SHAPES.values(), ids=SHAPES)
def test_a_task_is_complete_with_the_chunk_that_closes_it(script: Script) -> None:
    text = scripted_llm.plan(script)
    pieces = cut(TextReply(text, chunk=scripted_llm.CHARACTERS))
    planned, whole = scripted_llm.planned(script)
    for number, seconds in planned.items():
        last = round((seconds - scripted_llm.FIRST_SECONDS) * scripted_llm.TOKENS_PER_SECOND)
        assert f'"source": "step {number}"}}' in "".join(pieces[: last + 1])
        assert f'"source": "step {number}"}}' not in "".join(pieces[:last])
    assert whole == pytest.approx(scripted_llm.FIRST_SECONDS + (len(pieces) - 1) / scripted_llm.TOKENS_PER_SECOND)


@pytest.mark.parametrize("script", SHAPES.values(), ids=SHAPES)
def test_the_scripted_plan_has_the_graph_of_the_script(script: Script) -> None:
    tasks = json.loads(scripted_llm.plan(script))["tasks"]
    graph = {task["id"] + 1: [need + 1 for need in task["dep"] if need >= 0] for task in tasks}
    assert graph == {number: list(needs) for number, needs in script.graph.items()}


def test_critical_path_of_a_supplied_plan_has_only_experts() -> None:
    critical, tasks = BY_NAME["supplied"].critical(SHAPES["chain_8"])
    assert critical == pytest.approx(8 * 0.05)
    assert tasks == 8


def test_critical_path_has_only_the_last_task_if_the_llm_is_slower_than_the_tasks() -> None:
    script = SHAPES["chain_8"]
    planned, whole = scripted_llm.planned(script)
    critical, tasks = BY_NAME["llm_results"].critical(script)
    assert critical == pytest.approx(planned[8] + 0.05)
    assert critical > whole
    assert tasks == 1


def test_critical_path_contains_one_llm_selection_and_the_answer() -> None:
    script = SHAPES["single"]
    choice = scripted_llm.seconds(scripted_llm.choice("noop-large"))
    more = BY_NAME["llm_selects"].critical(script)[0] - BY_NAME["llm"].critical(script)[0]
    assert more == pytest.approx(choice)
    answer = BY_NAME["llm"].critical(script)[0] - BY_NAME["llm_results"].critical(script)[0]
    assert answer == pytest.approx(scripted_llm.seconds(scripted_llm.ANSWER))


@pytest.mark.parametrize(("tasks", "selecting", "without"), [(1, 3, 2), (4, 6, 2), (8, 10, 2)])
def test_llm_calls_of_jarvis_match_the_counted_calls(tasks: int, selecting: int, without: int) -> None:
    assert BY_NAME["llm_selects"].calls(tasks) == selecting
    assert BY_NAME["llm"].calls(tasks) == without


def test_tokens_come_from_the_usage_of_the_run() -> None:
    assert RunTimings(ended={"usage": {"input_tokens": 12, "output_tokens": 3}}).tokens == (12, 3)
    assert RunTimings(ended={}).tokens == (0, 0)


def test_scripted_planner_replies_with_the_plan_of_the_requested_shape() -> None:
    replies = scripted_llm.ScriptedReplies(*SHAPES.values())
    prompt = f'You plan.\n<data name="request" id="x">\n{scripted_llm.request(SHAPES["wide_4"], 7)}\n</data id="x">'
    reply = replies({"messages": [{"role": "user", "content": prompt}]})
    assert reply.text == scripted_llm.plan(SHAPES["wide_4"])


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda controller: controller.name)
async def test_plain_asyncio_takes_at_least_the_critical_path(controller: Controller) -> None:
    script = SHAPES["chain_4"]
    delayed = FakeExpert("delayed", [card(f"{TASK}-large", TASK)], specs=[DELAYED_TASK], answer=delayed_answer)
    async with (
        serve_scripted_llm(script) as llm,
        delayed.serving() as expert,
        PlainClient.connected(llm.base_url, expert) as plain,
    ):
        taken = await plain.run(controller, script, 1)
    assert taken >= controller.critical(script)[0] - CLOCK_SECONDS


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda controller: controller.name)
async def test_plain_asyncio_calls_the_llm_as_often_as_the_controller_needs(controller: Controller) -> None:
    script = SHAPES["chain_4"]
    delayed = FakeExpert("delayed", [card(f"{TASK}-large", TASK)], specs=[DELAYED_TASK], answer=delayed_answer)
    async with (
        serve_scripted_llm(script) as llm,
        delayed.serving() as expert,
        PlainClient.connected(llm.base_url, expert) as plain,
    ):
        await plain.run(controller, script, 1)
        calls = {"planner": 1, "selector": 4, "responder": int(controller.answers)}
        assert len(llm.requests) == sum(calls[role] for role in controller.llm_roles)


@pytest.mark.parametrize(("seconds", "verdict"), [(0.480, "met"), (0.481, "missed")])
def test_makespan_target_is_30_ms_above_plain_asyncio(seconds: float, verdict: str) -> None:
    assert makespan_row("endtoend.x_ms", seconds, 0.450, "").verdict == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.582, "met"), (0.583, "missed")])
def test_orchestrator_target_is_6_ms_above_plain_asyncio_for_each_task_on_the_path(
    seconds: float, verdict: str
) -> None:
    assert overhead_row("chain_8", SCRIPTS["chain_8"], seconds, 0.534).verdict == verdict
