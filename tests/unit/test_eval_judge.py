import json

import pytest

from services.planner.plan import Decision, Draft, Input, Many, Reference, Task, Text
from services.planner.request import Request
from tests.eval import judge
from tests.eval.lines import Line
from tests.eval.planners import Outcome
from tests.fakes import ScriptedLLM, TextReply
from tests.support.plans import LITE

YES = json.dumps({"correct": True, "passing": True, "rational": True, "success": True})
PARTLY = json.dumps({"correct": False, "passing": True, "rational": True, "success": False})
DRAFT = Draft(
    (
        Task(1, "image-to-text", {"image": Input("file1")}),
        Task(2, "summarization", {"text": Many((Reference(1, "text"), Text("</data>")))}, '{"max_length": 9}'),
    ),
    (),
    Decision("embedded", ""),
)


@pytest.fixture
def judge_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in (("MODEL", "critic"), ("INTERNAL", "true"), ("ATTEMPTS", "1")):
        monkeypatch.setenv(f"EVAL_JUDGE_LLM_{name}", value)
    return monkeypatch


async def scores(count: int) -> dict[str, object]:
    lines = [Line(number, "Read it and sum it up", type="chain") for number in range(count)]
    return await judge.scores(lines, [Outcome(DRAFT, Request())] * count, LITE)


async def test_scores_are_percentages_of_true(judge_environment: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving(
        [TextReply(f"Here it is: {YES}"), TextReply(PARTLY), TextReply("I cannot tell.")]
    ) as endpoint:
        judge_environment.setenv("EVAL_JUDGE_LLM_BASE_URL", endpoint.base_url)
        assert await scores(3) == {
            "model": "critic",
            "n": 2,
            "unjudged": 1,
            "gpt4_score": 50.0,
            "passing_rate": 100.0,
            "rationality": 100.0,
            "success_rate": 50.0,
        }


async def test_the_judge_sees_the_request_the_tasks_and_the_plan(judge_environment: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving([TextReply(YES)]) as endpoint:
        judge_environment.setenv("EVAL_JUDGE_LLM_BASE_URL", endpoint.base_url)
        await scores(1)
    prompt = endpoint.requests[0]["messages"][-1]["content"]
    assert "Read it and sum it up" in prompt
    assert "- depth-estimation" not in prompt
    assert "- image-to-text: " in prompt
    assert '1. image-to-text {"image": "file file1"}' in prompt
    assert '2. summarization {"text": ["text of task 1", ' in prompt


async def test_model_of_the_planner_is_not_used_as_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("LLM_MODEL", "planner")
    assert await scores(1) == {"absent": judge.ABSENT}


@pytest.mark.parametrize("answer", ["", "yes", "{", '{"correct": true}', YES.replace("true", '"yes"'), "[true]"])
def test_invalid_reply_is_no_verdict(answer: str) -> None:
    assert judge.read(answer) is None


def test_empty_plan_is_written_as_no_tasks() -> None:
    assert judge.written(Draft((), (), Decision("embedded", ""))) == "(no tasks)"
