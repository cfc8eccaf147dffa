"""Judgement of plans by an LLM: the paper's GPT-4 score, and the questions for its human judges.

Shen et al., arXiv 2303.17580: the GPT-4 score is the share of plans that a critic finds right (section 4.2); passing
rate, whether a plan can be executed; rationality, whether it fits the request; success rate, whether the request is
resolved (section 4.4). In the paper people judged executed runs; here an LLM judges the plan.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.llm.client import LLM, LLMError, Message
from services.llm.prompt import Prompt, nonce, quote_data
from services.llm.settings import LlmSettings
from services.planner.plan import Argument, Draft, File, Input, Json, Many, Reference, Task, Text
from services.planner.task_spec import Catalogue
from tests.eval.lines import Line
from tests.eval.metrics import percent
from tests.eval.planners import Outcome, gather_limited

QUESTIONS = {"correct": "gpt4_score", "passing": "passing_rate", "rational": "rationality", "success": "success_rate"}
"""Fields of the judge's reply, and the names of the percentages of true."""

ABSENT = "no judge is configured: set EVAL_JUDGE_LLM_BASE_URL and EVAL_JUDGE_LLM_MODEL"

_OWN = {"EVAL_JUDGE_LLM_BASE_URL", "EVAL_JUDGE_LLM_MODEL"}
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


async def scores(lines: Sequence[Line], outcomes: Sequence[Outcome], catalogue: Catalogue) -> dict[str, Any]:
    """Percentages of plans for which the judge answers true; without a judge, the reason under absent.

    Only settings of the judge itself count, so that the planner's model never judges its own plans.
    """
    settings = LlmSettings.of("eval_judge")
    if settings.base_url is None or not _OWN & os.environ.keys():
        return {"absent": ABSENT}
    async with LLM.open(settings, role="judge") as llm:

        async def verdict(pair: tuple[Line, Outcome]) -> Mapping[str, bool] | None:
            return await _verdict(llm, *pair, catalogue)

        verdicts = await gather_limited(zip(lines, outcomes, strict=True), verdict, limit=settings.concurrency)
    valid = [verdict for verdict in verdicts if verdict]
    shares = {name: percent(sum(one[field] for one in valid), len(valid)) for field, name in QUESTIONS.items()}
    return {"model": settings.model, "n": len(valid), "unjudged": len(verdicts) - len(valid), **shares}


async def _verdict(llm: LLM, line: Line, outcome: Outcome, catalogue: Catalogue) -> Mapping[str, bool] | None:
    try:
        reply = await llm.complete(_messages(line, outcome, catalogue))
    except LLMError:
        return None
    found = read(reply.text)
    llm.record_answer(valid=found is not None)
    return found


def read(answer: str) -> Mapping[str, bool] | None:
    """Parses the judge's reply; None if it is invalid."""
    found = _OBJECT.search(answer)
    try:
        reply = json.loads(found.group()) if found else {}
    except ValueError:
        return None
    return reply if all(isinstance(reply.get(field), bool) for field in QUESTIONS) else None


def _messages(line: Line, outcome: Outcome, catalogue: Catalogue) -> list[Message]:
    token = nonce()
    return Prompt.read(Path(__file__).with_name("prompt.md")).render(
        tasks="\n".join(f"- {spec.name}: {spec.description}" for spec in catalogue.values()),
        request=quote_data("request", line.request, token),
        plan=quote_data("plan", written(outcome.draft), token),
    )


def written(draft: Draft) -> str:
    """A plan as text for the judge, one task per line."""
    return "\n".join(f"{task.id}. {task.task} {_given(task)}" for task in draft.tasks) or "(no tasks)"


def _given(task: Task) -> str:
    arguments = {port: _described(argument) for port, argument in task.arguments.items()}
    return json.dumps(arguments | json.loads(task.parameters_json or "{}"), ensure_ascii=False)


def _described(argument: Argument) -> Any:
    match argument:
        case Many(items):
            return [_described(item) for item in items]
        case Reference(task_id, output):
            return f"{output} of task {task_id}"
        case Input(name) | File(name=name):
            return f"file {name}"
        case Text(text):
            return text
        case Json(text):
            return json.loads(text)
        case _:
            return None
