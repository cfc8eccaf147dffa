"""What a model is given of a run to write from: the most telling of it, in as many tokens as there are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.llm.prompt import Part, fit_to_budget
from services.responder.escape import named, phrase
from services.responder.run_summary import Account, Artifact, Json, State, Task, Turn
from services.responder.summarize_outputs import condensed
from services.responder.token_budget import Count, shares, within

LEAST_TOKENS = 40
"""Of one output; where there is less for each, the less telling are left out."""

_TEXT, _FINAL = 3.0, 4.0
"""How much more room words get than data, and what nothing else was made from than what was."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Texts for a prompt, and what they leave out.

    Args:
        text: of it all.
        left_out: how many pieces are not in it or not whole.
    """

    text: str
    left_out: int


@dataclass(slots=True)
class _Told:
    """A task on its way into the prompt."""

    task: Task
    value: float
    head: str
    outputs: dict[str, str] = field(default_factory=dict)


def results(account: Account, budget: int, count: Count) -> Evidence:
    """What became of the tasks, in their order."""
    told = [_told(task, account.tasks) for task in account.tasks]
    heads = fit_to_budget([Part(each, each.head, each.value) for each in told], budget // 2, count)
    kept = [part.item for part in heads.included]
    dropped, shortened = _fill(kept, budget - heads.tokens, count)
    notes = [(len(heads.omitted), "tasks more"), (dropped, "outputs more")]
    more = [f"({number} {what}, of which there is no room to tell)" for number, what in notes if number]
    return Evidence("\n\n".join([*map(_block, kept), *more]), len(heads.omitted) + dropped + shortened)


def files(given: Mapping[str, Artifact], budget: int, count: Count) -> Evidence:
    """The files that were sent, the first ones if there are many."""
    lines = [f"artifact:{name} is {named(file)}" for name, file in given.items()]
    kept = fit_to_budget([Part(line, line, -place) for place, line in enumerate(lines)], budget, count)
    more = [f"and {len(kept.omitted)} more files"] if kept.omitted else []
    return Evidence("\n".join([*(part.item for part in kept.included), *more]), len(kept.omitted))


def conversation(history: Sequence[Turn], budget: int, count: Count) -> Evidence:
    """What was said before, the newest first to be kept."""
    speakers = {True: "user", False: "assistant"}
    turns = [f"{speakers[turn.by_user]}: {within(turn.text, budget // 3, count)}" for turn in history]
    kept = fit_to_budget([Part(turn, turn, place) for place, turn in enumerate(turns)], budget, count)
    return Evidence("\n\n".join(part.item for part in kept.included), len(kept.omitted))


# ---------------------------------------------------------------- tasks


def _told(task: Task, tasks: Sequence[Task]) -> _Told:
    final = task.state.good and not any(task.id in other.needs and other.state.good for other in tasks)
    told = _Told(task, value=(_FINAL if final or not task.state.good else 1.0) + task.id / 1e9, head=_head(task))
    if task.state.good:
        told.outputs = {port: words for port, words in _outputs(task) if words}
    return told


def _outputs(task: Task) -> Iterator[tuple[str, str]]:
    for port, output in sorted(task.outputs.items(), key=lambda item: item[0] != "text"):
        if isinstance(output, Json):
            yield port, condensed(output.data)
        elif isinstance(output, str):
            yield port, output.strip()


def _head(task: Task) -> str:
    lines = [f"task {task.id}: {phrase(task.name)}, {_how(task)}"]
    if task.source:
        lines.append(f"asked for by: {phrase(task.source)}")
    if task.question:
        lines.append(f"question: {phrase(task.question)}")
    if worked_on := [*map(phrase, task.given), *(f"task {need}" for need in sorted(task.needs))]:
        lines.append(f"made from: {', '.join(worked_on)}")
    if task.state.good:
        lines += [f"made: artifact:task{task.id}.{port} is {named(file)}" for port, file in _files(task)]
    return "\n".join(lines)


def _how(task: Task) -> str:
    by = f" by {phrase(task.model)}" if task.model else ""
    took = f" in {task.seconds:.2g} s" if task.seconds is not None and task.state is State.SUCCEEDED else ""
    return f"{task.state.value}{by}{took}"


def _files(task: Task) -> Iterator[tuple[str, Artifact]]:
    return ((port, output) for port, output in sorted(task.outputs.items()) if isinstance(output, Artifact))


def _block(told: _Told) -> str:
    return "\n".join([told.head, *(f"{phrase(port)}: {words}" for port, words in told.outputs.items())])


def _fill(told: Sequence[_Told], budget: int, count: Count) -> tuple[int, int]:
    """Fits outputs into the budget; gives how many are dropped, and how many shortened."""
    wanted = [(each, port) for each in told for port in each.outputs]
    wanted.sort(key=lambda item: (item[1] != "text", -item[0].value))
    most = max(0, budget) // LEAST_TOKENS
    for each, port in wanted[most:]:
        del each.outputs[port]
    whole = [within(each.outputs[port], budget, count) for each, port in wanted[:most]]
    weights = [each.value * (_TEXT if port == "text" else 1.0) for each, port in wanted[:most]]
    budget -= sum(count(f"{port}: ") for _, port in wanted[:most])
    shortened = 0
    for (each, port), words, tokens in zip(
        wanted[:most], whole, shares([*map(count, whole)], weights, budget), strict=True
    ):
        before, each.outputs[port] = each.outputs[port], within(words, tokens, count)
        shortened += each.outputs[port] != before
    return len(wanted[most:]), shortened
