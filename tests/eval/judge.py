"""A model's opinion of the plans: the paper's GPT-4 score, and what its human judges were asked.

Shen et al., arXiv 2303.17580: the GPT-4 score says whether a critic finds a graph's plan right (section 4.2); passing
rate says whether a plan can be executed, rationality whether it is in line with the request, success rate whether the
request is resolved (section 4.4). There people judged what was run; here a model judges the plan.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.llm.client import LLM, Message, Unusable
from services.llm.prompt import Prompt, nonce, quoted
from services.llm.settings import LlmSettings
from services.planner.plan import Argument, Catalogue, Draft, File, Input, Json, Many, Reference, Task, Text
from tests.eval.lines import Line
from tests.eval.metrics import percent
from tests.eval.planners import Outcome, side_by_side

QUESTIONS = {"correct": "gpt4_score", "passing": "passing_rate", "rational": "rationality", "success": "success_rate"}
"""What is asked of each plan, and the name of the share of yes in percent."""

ABSENT = "no judge is configured: set EVAL_JUDGE_LLM_BASE_URL and EVAL_JUDGE_LLM_MODEL"

_OWN = {"EVAL_JUDGE_LLM_BASE_URL", "EVAL_JUDGE_LLM_MODEL"}
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


async def scores(lines: Sequence[Line], outcomes: Sequence[Outcome], catalogue: Catalogue) -> dict[str, Any]:
    """Percent of the plans that the judge says yes to; or, under absent, why there is nothing.

    Only what is set for the judge itself counts: nobody means a planner's model to judge its own plans.
    """
    settings = LlmSettings.of("eval_judge")
    if settings.base_url is None or not _OWN & os.environ.keys():
        return {"absent": ABSENT}
    async with LLM.opened(settings, role="judge") as llm:

        async def verdict(pair: tuple[Line, Outcome]) -> Mapping[str, bool] | None:
            return await _verdict(llm, *pair, catalogue)

        verdicts = await side_by_side(zip(lines, outcomes, strict=True), verdict, limit=settings.concurrency)
    told = [verdict for verdict in verdicts if verdict]
    shares = {name: percent(sum(one[asked] for one in told), len(told)) for asked, name in QUESTIONS.items()}
    return {"model": settings.model, "n": len(told), "unjudged": len(verdicts) - len(told), **shares}


async def _verdict(llm: LLM, line: Line, outcome: Outcome, catalogue: Catalogue) -> Mapping[str, bool] | None:
    try:
        reply = await llm.complete(_messages(line, outcome, catalogue))
    except Unusable:
        return None
    found = read(reply.text)
    llm.judged(ok=found is not None)
    return found


def read(answer: str) -> Mapping[str, bool] | None:
    """The four answers in what a judge wrote, or None."""
    found = _OBJECT.search(answer)
    try:
        said = json.loads(found.group()) if found else {}
    except ValueError:
        return None
    return said if all(isinstance(said.get(asked), bool) for asked in QUESTIONS) else None


def _messages(line: Line, outcome: Outcome, catalogue: Catalogue) -> list[Message]:
    token = nonce()
    return Prompt.read(Path(__file__).with_name("prompt.md")).filled(
        tasks="\n".join(f"- {spec.name}: {spec.description}" for spec in catalogue.values()),
        request=quoted("request", line.request, token),
        plan=quoted("plan", written(outcome.draft), token),
    )


def written(draft: Draft) -> str:
    """A plan as a judge reads it, one task a line."""
    return "\n".join(f"{task.id}. {task.task} {_given(task)}" for task in draft.tasks) or "(no tasks)"


def _given(task: Task) -> str:
    given = {port: _said(argument) for port, argument in task.arguments.items()}
    return json.dumps(given | json.loads(task.parameters_json or "{}"), ensure_ascii=False)


def _said(argument: Argument) -> Any:
    match argument:
        case Many(items):
            return [_said(item) for item in items]
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
