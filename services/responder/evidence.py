"""Data of a run for the prompt of an answer, selected and shortened to a token budget."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.llm.token_budget import Part, fit_to_budget
from services.responder.markdown import describe_file, inline, shorten
from services.responder.run_summary import Artifact, Json, RunSummary, State, Task, Turn

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text."""

MIN_TOKENS = 40
"""Minimum for one output; if there is less, the least important outputs are omitted."""

_TEXT, _FINAL = 3.0, 4.0
"""Weights of text against data, and of final results against intermediate ones."""

_LONGEST_TOKEN = 8
"""Upper bound of characters per token; texts longer than the limit allows are cut before they are counted."""
_SLACK = 0.95

MAX_ITEMS = 20
"""Limit of list items, or of keys of an object."""

MAX_EXAMPLES = 5
"""Findings of one label that are listed individually."""

MAX_STRING_LENGTH = 400
MAX_DEPTH = 6
_ROUNDED_FROM = 100  # larger numbers, such as pixel coordinates, are rounded to integers
_LABELS = ("label", "entity")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Text for a prompt.

    Args:
        text: the text.
        left_out: number of omitted or shortened parts.
    """

    text: str
    left_out: int


@dataclass(slots=True)
class _TaskEvidence:
    """A task, while the prompt is built."""

    task: Task
    value: float
    head: str
    outputs: dict[str, str] = field(default_factory=dict)


def results(summary: RunSummary, budget: int, count: TokenCounter) -> Evidence:
    """Describes the tasks and their outputs, in plan order."""
    entries = [_task_evidence(task, summary.tasks) for task in summary.tasks]
    heads = fit_to_budget([Part(entry, entry.head, entry.value) for entry in entries], budget // 2, count)
    included = [part.item for part in heads.included]
    dropped, shortened = _fill(included, budget - heads.tokens, count)
    notes = [(len(heads.omitted), "more tasks"), (dropped, "more outputs")]
    omissions = [f"({number} {kind}, omitted)" for number, kind in notes if number]
    return Evidence("\n\n".join([*map(_block, included), *omissions]), len(heads.omitted) + dropped + shortened)


def files(uploaded: Mapping[str, Artifact], budget: int, count: TokenCounter) -> Evidence:
    """Lists the uploaded files; the first ones if there are too many."""
    lines = [f"artifact:{name} is {describe_file(file)}" for name, file in uploaded.items()]
    included = fit_to_budget([Part(line, line, -index) for index, line in enumerate(lines)], budget, count)
    omissions = [f"and {len(included.omitted)} more files"] if included.omitted else []
    return Evidence("\n".join([*(part.item for part in included.included), *omissions]), len(included.omitted))


def conversation(history: Sequence[Turn], budget: int, count: TokenCounter) -> Evidence:
    """Renders the earlier turns; the newest are included first."""
    speakers = {True: "user", False: "assistant"}
    turns = [f"{speakers[turn.by_user]}: {truncate_to_tokens(turn.text, budget // 3, count)}" for turn in history]
    included = fit_to_budget([Part(turn, turn, index) for index, turn in enumerate(turns)], budget, count)
    return Evidence("\n\n".join(part.item for part in included.included), len(included.omitted))


# ---------------------------------------------------------------- tasks


def _task_evidence(task: Task, tasks: Sequence[Task]) -> _TaskEvidence:
    final = task.state.is_successful and not any(
        task.id in later.needs and later.state.is_successful for later in tasks
    )
    entries = _TaskEvidence(
        task, value=(_FINAL if final or not task.state.is_successful else 1.0) + task.id / 1e9, head=_head(task)
    )
    if task.state.is_successful:
        entries.outputs = {port: output_text for port, output_text in _outputs(task) if output_text}
    return entries


def _outputs(task: Task) -> Iterator[tuple[str, str]]:
    for port, output in sorted(task.outputs.items(), key=lambda item: item[0] != "text"):
        if isinstance(output, Json):
            yield port, summarize(output.data)
        elif isinstance(output, str):
            yield port, output.strip()


def _head(task: Task) -> str:
    lines = [f"task {task.id}: {inline(task.name)}, {_how(task)}"]
    if task.source:
        lines.append(f"asked for by: {inline(task.source)}")
    if task.question:
        lines.append(f"question: {inline(task.question)}")
    if sources := [*map(inline, task.given), *(f"task {need}" for need in sorted(task.needs))]:
        lines.append(f"made from: {', '.join(sources)}")
    if task.state.is_successful:
        lines += [f"made: artifact:task{task.id}.{port} is {describe_file(file)}" for port, file in _files(task)]
    return "\n".join(lines)


def _how(task: Task) -> str:
    by = f" by {inline(task.model)}" if task.model else ""
    duration = f" in {task.seconds:.2g} s" if task.seconds is not None and task.state is State.SUCCEEDED else ""
    return f"{task.state.value}{by}{duration}"


def _files(task: Task) -> Iterator[tuple[str, Artifact]]:
    return ((port, output) for port, output in sorted(task.outputs.items()) if isinstance(output, Artifact))


def _block(entries: _TaskEvidence) -> str:
    return "\n".join(
        [entries.head, *(f"{inline(port)}: {output_text}" for port, output_text in entries.outputs.items())]
    )


def _fill(entries: Sequence[_TaskEvidence], budget: int, count: TokenCounter) -> tuple[int, int]:
    """Fits the outputs into the budget; returns the number of omitted and of shortened outputs."""
    outputs = [(entry, port) for entry in entries for port in entry.outputs]
    outputs.sort(key=lambda item: (item[1] != "text", -item[0].value))
    limit = max(0, budget) // MIN_TOKENS
    for entry, port in outputs[limit:]:
        del entry.outputs[port]
    truncated = [truncate_to_tokens(entry.outputs[port], budget, count) for entry, port in outputs[:limit]]
    weights = [entry.value * (_TEXT if port == "text" else 1.0) for entry, port in outputs[:limit]]
    budget -= sum(count(f"{port}: ") for _, port in outputs[:limit])
    shortened = 0
    for (entry, port), output_text, tokens in zip(
        outputs[:limit], truncated, split_budget([*map(count, truncated)], weights, budget), strict=True
    ):
        before, entry.outputs[port] = entry.outputs[port], truncate_to_tokens(output_text, tokens, count)
        shortened += entry.outputs[port] != before
    return len(outputs[limit:]), shortened


# ---------------------------------------------------------------- structured outputs


def summarize(data: Any) -> str:
    """Renders the data in one or a few lines."""
    label = _label_of(data)
    if not label:
        return _json(data)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for finding in data:
        groups.setdefault(str(finding[label]), []).append({key: finding[key] for key in finding if key != label})
    lines = [_group(name, findings) for name, findings in list(groups.items())[:MAX_ITEMS]]
    more = [f"{len(groups) - MAX_ITEMS} more labels"] if len(groups) > MAX_ITEMS else []
    return "\n".join(lines + more)


def _label_of(data: Any) -> str:
    """Returns the key that labels every finding of a list; empty if there is none."""
    if not isinstance(data, list) or not data or not all(isinstance(finding, dict) for finding in data):
        return ""
    return next((key for key in _LABELS if all(isinstance(finding.get(key), str) for finding in data)), "")


def _group(name: str, findings: Sequence[Mapping[str, Any]]) -> str:
    examples = "; ".join(_json(finding) for finding in findings[:MAX_EXAMPLES] if finding)
    more = f"; {len(findings) - MAX_EXAMPLES} more like these" if len(findings) > MAX_EXAMPLES else ""
    return f"{shorten(name, MAX_STRING_LENGTH)} × {len(findings)}{': ' if examples else ''}{examples}{more}"


def _json(data: Any) -> str:
    return json.dumps(_shorten_values(data, MAX_DEPTH), ensure_ascii=False)


def _shorten_values(data: Any, depth: int) -> Any:
    match data:
        case dict() | list() if depth == 0:
            return "…"
        case dict():
            return {
                shorten(str(key), MAX_STRING_LENGTH): _shorten_values(value, depth - 1)
                for key, value in list(data.items())[:MAX_ITEMS]
            } | _more(len(data))
        case list():
            items = [_shorten_values(item, depth - 1) for item in data[:MAX_ITEMS]]
            return [*items, *(f"{key} {value}" for key, value in _more(len(data)).items())]
        case float() if math.isfinite(data):
            return round(data) if abs(data) >= _ROUNDED_FROM else round(data, 3)
        case str():
            return shorten(data, MAX_STRING_LENGTH)
        case _:
            return data


def _more(count: int) -> dict[str, str]:
    return {"…": f"{count - MAX_ITEMS} more"} if count > MAX_ITEMS else {}


# ---------------------------------------------------------------- token limits


def truncate_to_tokens(text: str, tokens: int, count: TokenCounter) -> str:
    """Returns the text, without its middle if it exceeds the limit; empty if the limit is not positive."""
    characters = tokens * _LONGEST_TOKEN
    fit = shorten(text, characters) if characters > 0 else ""
    while fit and (used := count(fit)) > tokens:
        characters = int(min(characters, len(text)) * tokens / used * _SLACK)
        fit = shorten(text, characters) if characters > 0 else ""
    return fit


def split_budget(needed: Sequence[int], weights: Sequence[float], budget: int) -> list[int]:
    """Divides a budget by weight; what one item does not need goes to the others."""
    shares, remaining, weight = [0] * len(needed), budget, sum(weights)
    for index in sorted(range(len(needed)), key=lambda index: needed[index] / weights[index]):
        shares[index] = min(needed[index], int(remaining * weights[index] / max(weight, weights[index])))
        remaining -= shares[index]
        weight -= weights[index]
    return shares
