"""What the benchmark holds whole runs against: when an LLM's plan is out, their longest way, what JARVIS would ask."""

import json

import pytest

from tests.bench.endtoend import scripted_llm
from tests.bench.endtoend.client import Told
from tests.bench.endtoend.controllers import CONTROLLERS, SHAPES, Controller
from tests.bench.endtoend.deployment import PACED, pace, speaking
from tests.bench.endtoend.measuring import makespan_row
from tests.bench.endtoend.plain import PlainClient
from tests.bench.peers.makespan import SCRIPTS, overhead_row
from tests.bench.shapes import TASK, Script
from tests.fakes import FakeExpert, card
from tests.fakes.llm.http_reply import cut
from tests.fakes.llm.scripted_replies import Says

CLOCK_SECONDS = 0.005
"""What sleeps may be shorter than said, by the resolution of timers."""
BY_NAME = {controller.name: controller for controller in CONTROLLERS}


@pytest.mark.parametrize("script", SHAPES.values(), ids=SHAPES)
def test_a_task_is_out_with_the_piece_that_closes_it(script: Script) -> None:
    text = scripted_llm.plan(script)
    pieces = cut(Says(text, chunk=scripted_llm.CHARACTERS))
    planned, whole = scripted_llm.planned(script)
    for number, seconds in planned.items():
        last = round((seconds - scripted_llm.FIRST_SECONDS) * scripted_llm.TOKENS_PER_SECOND)
        assert f'"source": "step {number}"}}' in "".join(pieces[: last + 1])
        assert f'"source": "step {number}"}}' not in "".join(pieces[:last])
    assert whole == pytest.approx(scripted_llm.FIRST_SECONDS + (len(pieces) - 1) / scripted_llm.TOKENS_PER_SECOND)


@pytest.mark.parametrize("script", SHAPES.values(), ids=SHAPES)
def test_the_plan_that_is_said_has_the_graph_of_the_script(script: Script) -> None:
    tasks = json.loads(scripted_llm.plan(script))["tasks"]
    told = {task["id"] + 1: [need + 1 for need in task["dep"] if need >= 0] for task in tasks}
    assert told == {number: list(needs) for number, needs in script.graph.items()}


def test_a_supplied_plan_is_critical_by_its_experts_alone() -> None:
    critical, tasks = BY_NAME["supplied"].critical(SHAPES["chain_8"])
    assert critical == pytest.approx(8 * 0.05)
    assert tasks == 8


def test_a_plan_of_an_llm_is_critical_from_its_last_task_on_where_the_llm_is_slower_than_the_tasks() -> None:
    script = SHAPES["chain_8"]
    planned, whole = scripted_llm.planned(script)
    critical, tasks = BY_NAME["llm_results"].critical(script)
    assert critical == pytest.approx(planned[8] + 0.05)
    assert critical > whole
    assert tasks == 1


def test_selection_by_an_llm_delays_each_task_once_and_the_answer_follows() -> None:
    script = SHAPES["single"]
    choice = scripted_llm.seconds(scripted_llm.choice("noop-large"))
    more = BY_NAME["llm_selects"].critical(script)[0] - BY_NAME["llm"].critical(script)[0]
    assert more == pytest.approx(choice)
    answer = BY_NAME["llm"].critical(script)[0] - BY_NAME["llm_results"].critical(script)[0]
    assert answer == pytest.approx(scripted_llm.seconds(scripted_llm.ANSWER))


@pytest.mark.parametrize(("tasks", "selecting", "without"), [(1, 3, 2), (4, 6, 2), (8, 10, 2)])
def test_the_calls_of_jarvis_are_those_that_were_counted(tasks: int, selecting: int, without: int) -> None:
    assert BY_NAME["llm_selects"].calls(tasks) == selecting
    assert BY_NAME["llm"].calls(tasks) == without


def test_tokens_are_those_of_the_usage_that_ends_a_run() -> None:
    assert Told(ended={"usage": {"input_tokens": 12, "output_tokens": 3}}).tokens == (12, 3)
    assert Told(ended={}).tokens == (0, 0)


def test_who_is_asked_for_a_plan_says_that_of_the_shape_in_the_request() -> None:
    speaker = scripted_llm.Speaker(*SHAPES.values())
    prompt = f'You plan.\n<data name="request" id="x">\n{scripted_llm.request(SHAPES["wide_4"], 7)}\n</data id="x">'
    said = speaker({"messages": [{"role": "user", "content": prompt}]})
    assert said.text == scripted_llm.plan(SHAPES["wide_4"])


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda controller: controller.name)
async def test_plain_asyncio_takes_at_least_the_critical_path(controller: Controller) -> None:
    script = SHAPES["chain_4"]
    paced = FakeExpert("paced", [card(f"{TASK}-large", TASK)], specs=[PACED], answer=pace)
    async with (
        speaking(script) as llm,
        paced.serving() as expert,
        PlainClient.connected(llm.base_url, expert) as plain,
    ):
        taken = await plain.run(controller, script, 1)
    assert taken >= controller.critical(script)[0] - CLOCK_SECONDS


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda controller: controller.name)
async def test_plain_asyncio_calls_the_llm_as_often_as_the_controller_needs(controller: Controller) -> None:
    script = SHAPES["chain_4"]
    paced = FakeExpert("paced", [card(f"{TASK}-large", TASK)], specs=[PACED], answer=pace)
    async with (
        speaking(script) as llm,
        paced.serving() as expert,
        PlainClient.connected(llm.base_url, expert) as plain,
    ):
        await plain.run(controller, script, 1)
        calls = {"planner": 1, "selector": 4, "responder": int(controller.answers)}
        assert len(llm.requests) == sum(calls[role] for role in controller.asking)


@pytest.mark.parametrize(("seconds", "verdict"), [(0.480, "met"), (0.481, "missed")])
def test_makespan_target_is_30_ms_above_plain_asyncio(seconds: float, verdict: str) -> None:
    assert makespan_row("endtoend.x_ms", seconds, 0.450, "").verdict == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.582, "met"), (0.583, "missed")])
def test_orchestrator_target_is_6_ms_above_plain_asyncio_for_each_task_on_the_path(
    seconds: float, verdict: str
) -> None:
    assert overhead_row("chain_8", SCRIPTS["chain_8"], seconds, 0.534).verdict == verdict
