"""Builds the prompts of the LLM planner: the most relevant parts within a token budget."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from services.llm.prompt import Message, Prompt, escape_markers, nonce, prompt_version, quote_data
from services.llm.token_budget import FittedParts, Part, fit_to_budget
from services.planner.llm import demonstrations
from services.planner.llm.demonstrations import COUNT, VARIETY, Demonstration, Demonstrations
from services.planner.llm.inputs import LONG, Item, Material, shortened
from services.planner.llm.retrieval import SimilarityIndex, TaskRanking
from services.planner.plan import Argument, File, Input, Json, Many, Note, NoteKind, Reference, Single, Text, modalities
from services.planner.request import Prior, Replan, Request, Turn
from services.planner.task_spec import Catalogue, Parameter, Port, Spec

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text."""

RESERVE = 32
"""Tokens reserved for message markers of the prompt."""

REQUEST_SHARE, REPAIR_SHARE = 0.4, 0.4
"""Maximum share of the budget for the request, and for an earlier answer with its faults."""

TURN_CHARACTERS = 800
"""Limit of one earlier turn."""

COMPARED_CHARACTERS = 2_000
"""Limit of the text compared for similarity."""

_OPENING = re.compile(r"[<\[＜﹤‹〈]")

_FOLDER = Path(__file__).parent.parent
_PROMPTS = (_FOLDER / "prompt.md", _FOLDER / "repair.md")

_Kind = Literal["tasks", "demonstrations", "history", "inputs", "existing"]

_VALUES: Mapping[_Kind, tuple[float, float]] = {
    "inputs": (1.0, 0.02),
    "existing": (0.98, 0.02),
    "tasks": (0.95, 0.05),
    "demonstrations": (0.9, 0.25),
    "history": (0.85, 0.5),
}
"""Priority of the best part of a kind, and how fast the priority of its further parts declines."""

_SIMILARITY_BONUS = 0.5
"""Bonus to the priority of an earlier turn that is similar to the request."""


@dataclass(frozen=True, slots=True)
class PlanPrompt:
    """A prompt of the planner.

    Args:
        messages: to send.
        names: of the tasks in the prompt.
        notes: for the user, about omitted inputs.
        cut: number of omitted parts by kind.
    """

    messages: tuple[Message, ...]
    names: tuple[str, ...]
    notes: tuple[Note, ...]
    cut: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _PromptPart:
    """Kind of a prompt part, and the name of the task or input it describes."""

    kind: _Kind
    name: str = ""


class PlanPromptBuilder:
    """Builds the prompts of plans and of repair calls.

    Args:
        count: maximum number of demonstrations.
        variety: 0 selects the most similar demonstrations, 1 the most varied.
    """

    def __init__(self, *, count: int = COUNT, variety: float = VARIETY) -> None:
        self._demonstrations = Demonstrations.shipped()
        self._count, self._variety = count, variety
        self._plan_template, self._repair_template = map(Prompt.read, _PROMPTS)
        self.version = prompt_version(*(path.read_bytes() for path in (*_PROMPTS, demonstrations.FILE)))
        """Version of all texts that prompts consist of."""
        self._cached_ranking: tuple[Catalogue, TaskRanking] | None = None

    def planning_prompt(self, request: Request, catalogue: Catalogue, budget: int, tokens: TokenCounter) -> PlanPrompt:
        """Builds the prompt for a plan; it exceeds the budget only if its instructions alone do."""
        material, data_tokens = Material.of(request), _data_counter(tokens)
        available = budget - RESERVE - _message_tokens(self._plan_template.render(**_slots({}, request.limit)), tokens)
        request_text, is_complete = _fit_text(
            material.request_text, len(request.text) + LONG, int(available * REQUEST_SHARE), data_tokens
        )
        fitted = fit_to_budget(
            list(self._parts(request, catalogue, material)), available - data_tokens(request_text), data_tokens
        )
        messages = self._plan_template.render(**_slots(_texts(fitted, request_text), request.limit))
        shown = tuple(part.item.name for part in fitted.included if part.item.kind == "tasks")
        notes = tuple(_notes(fitted, is_complete=is_complete, inputs={named.name for named in request.inputs}))
        return PlanPrompt(tuple(messages), shown, notes, Counter(part.item.kind for part in fitted.omitted))

    def repair_prompt(
        self, planning: tuple[Request, Catalogue], answer: str, faults: str, budget: int, tokens: TokenCounter
    ) -> PlanPrompt:
        """Builds the prompt for a repair call: the first prompt, shortened, with the answer and its faults."""
        available = int(budget * REPAIR_SHARE / 2)
        shortened_answer, _ = _fit_text(
            lambda characters: shortened(answer, characters), len(answer), available, tokens
        )
        shortened_faults, _ = _fit_text(
            lambda characters: shortened(faults, characters), len(faults), available, _data_counter(tokens)
        )
        further = self._repair_template.render(
            answer=escape_markers(shortened_answer), faults=quote_data("faults", shortened_faults, nonce())
        )
        first = self.planning_prompt(*planning, budget - _message_tokens(further, tokens), tokens)
        return PlanPrompt((*first.messages, *further), first.names, (), first.cut)

    def _parts(self, request: Request, catalogue: Catalogue, material: Material) -> Iterator[Part[_PromptPart]]:
        request_text = material.request_text(COMPARED_CHARACTERS)
        shown = self._demonstrations.most_similar(request_text, catalogue, count=self._count, variety=self._variety)
        yield from self._tasks(request, catalogue, material, shown)
        yield from _parts("demonstrations", (("", _render_demonstration(demonstration)) for demonstration in shown))
        yield from _history(request)
        yield from _parts("inputs", ((item.name, item.described()) for item in material.listed))
        yield from _existing(request, material)

    def _tasks(
        self, request: Request, catalogue: Catalogue, material: Material, shown: Iterable[Demonstration]
    ) -> Iterator[Part[_PromptPart]]:
        modalities_sent = {modality for item in material.items for modality in modalities(item.value)[:1]}
        required = {name for demonstration in shown for name in demonstration.names} | {
            task.task for task in request.standing
        }
        ordered = self._ranking(catalogue).ordered(
            material.request_text(COMPARED_CHARACTERS), modalities_sent, required
        )
        return _parts("tasks", ((spec.name, _render_task(spec)) for spec in ordered))

    def _ranking(self, catalogue: Catalogue) -> TaskRanking:
        if self._cached_ranking is None or self._cached_ranking[0] is not catalogue:
            self._cached_ranking = catalogue, TaskRanking(catalogue, self._demonstrations.used)
        return self._cached_ranking[1]


def _parts(kind: _Kind, entries: Iterable[tuple[str, str]]) -> Iterator[Part[_PromptPart]]:
    """Yields parts of one kind, most relevant first."""
    best, decline = _VALUES[kind]
    for position, (name, text) in enumerate(entries):
        yield Part(_PromptPart(kind, name), f"{text}\n", best / (1 + position * decline))


def _history(request: Request) -> Iterator[Part[_PromptPart]]:
    """Yields the earlier turns, oldest first; new turns and those similar to the request have priority."""
    earlier = request.conversation[:-1]
    similarities = SimilarityIndex([shortened(turn.text, COMPARED_CHARACTERS) for turn in earlier]).scores(
        shortened(request.text, COMPARED_CHARACTERS)
    )
    newest_first = _parts("history", (("", _render_turn(turn, TURN_CHARACTERS)) for turn in reversed(earlier)))
    for part, score in zip(reversed(list(newest_first)), similarities, strict=True):
        yield Part(part.item, part.text, part.priority + _SIMILARITY_BONUS * score)


def _existing(request: Request, material: Material) -> Iterator[Part[_PromptPart]]:
    failed = request.goal.failed if isinstance(request.goal, Replan) else ()
    rendered = (
        ("", _render_existing(prior, material.items, failed=prior.task.id in failed)) for prior in request.prior
    )
    return _parts("existing", rendered)


def _texts(fitted: FittedParts[_PromptPart], request_text: str) -> Mapping[str, str]:
    texts = {"request": request_text}
    for part in fitted.included:
        texts[part.item.kind] = texts.get(part.item.kind, "") + part.text
    return {kind: text.rstrip("\n") for kind, text in texts.items()}


def _slots(texts: Mapping[str, str], limit: int) -> Mapping[str, str]:
    token = nonce()
    data = ("tasks", "history", "inputs", "existing", "request")
    return {
        **{kind: quote_data(kind, texts.get(kind, ""), token) for kind in data},
        "demonstrations": texts.get("demonstrations", ""),
        "limit": f" At most {limit} tasks." if limit else "",
    }


def _notes(fitted: FittedParts[_PromptPart], *, is_complete: bool, inputs: set[str]) -> Iterator[Note]:
    if not is_complete:
        yield Note(NoteKind.TRIMMED, "The request is longer than the planner can read: the middle of it was left out.")
    omitted = [part.item.name for part in fitted.omitted if part.item.kind == "inputs" and part.item.name in inputs]
    if omitted:
        more = f" and {len(omitted) - 1} more" if len(omitted) > 1 else ""
        yield Note(NoteKind.TRIMMED, f"There are more files than the planner can look at: {omitted[0]}{more} left out.")


def _fit_text(written: Callable[[int], str], characters: int, available: int, tokens: TokenCounter) -> tuple[str, bool]:
    """Shortens a text to a token limit; returns whether it is complete."""
    text, is_complete = written(characters), True
    while (used := tokens(text)) > available and characters > LONG:
        characters = max(int(min(characters, len(text)) * max(available, 1) / used * 0.95), LONG)
        text, is_complete = written(characters), False
    return text, is_complete


def _data_counter(tokens: TokenCounter) -> TokenCounter:
    """Returns a counter for quoted data, in which delimiters are escaped."""
    return lambda text: tokens(_OPENING.sub("&lt;", text))


def _message_tokens(messages: Sequence[Message], tokens: TokenCounter) -> int:
    return sum(tokens(message.content) for message in messages)


# ---------------------------------------------------------------- rendering

DESCRIPTION_CHARACTERS, SUMMARY_CHARACTERS, TEXT_CHARACTERS = 160, 200, 200
"""Limits of a task's description, of a result summary and of a text argument."""

PARAMETERS, CHOICES, CHOICE_CHARACTERS = 6, 12, 40
"""Limits of a task's parameters, of a parameter's choices and of the length of a choice."""


def _render_task(spec: Spec) -> str:
    """Renders a catalogue task: description, inputs, outputs and parameters."""
    inputs = ", ".join(_port(port, optional="" if port.required else "?") for port in spec.inputs)
    outputs = ", ".join(_port(port) for port in spec.outputs)
    parameters = ", ".join(map(_parameter, spec.parameters[:PARAMETERS]))
    line = f"{spec.name}: {shortened(spec.description, DESCRIPTION_CHARACTERS)} ({inputs}) -> {outputs}"
    return _one_line(f"{line}; parameters: {parameters}" if parameters else line)


def _render_demonstration(example: Demonstration) -> str:
    """Renders an example request and its plan."""
    files = "".join(f"\nThere is: <file{number}>: {name}" for number, name in enumerate(example.files, start=1))
    return f"Request: {example.request}{files}\nAnswer: {_json({'tasks': example.tasks})}\n"


def _render_turn(message: Turn, characters: int) -> str:
    """Renders an earlier turn."""
    return f"{'user' if message.by_user else 'assistant'}: {_one_line(shortened(message.text, characters))}"


def _render_existing(prior: Prior, items: tuple[Item, ...], *, failed: bool) -> str:
    """Renders an existing task of the run and its result."""
    written = prior.task
    names = {item.argument: item.name for item in items}
    args = {port: _argument(argument, names) for port, argument in written.arguments.items()}
    line = _json({"task": written.task, "id": written.id, "args": args | _parameters(written.parameters_json)})
    summary = f": {_json(shortened(prior.summary, SUMMARY_CHARACTERS))}" if prior.summary else ""
    return f"{'failed' if failed else prior.state} {line}{summary}"


def _port(port: Port, optional: str = "") -> str:
    return f"{port.name}{optional}{'*' if port.many else ''}: {port.modality.name.lower()}"


def _parameter(parameter: Parameter) -> str:
    try:
        schema = json.loads(parameter.json_schema or "{}")
    except (ValueError, RecursionError):
        return parameter.name
    if not isinstance(schema, dict):
        return parameter.name
    choices = schema.get("enum")
    if isinstance(choices, list):
        return (
            f"{parameter.name}: {'|'.join(shortened(str(choice), CHOICE_CHARACTERS) for choice in choices[:CHOICES])}"
        )
    return f"{parameter.name}: {schema.get('type', 'any')}"


def _argument(argument: Argument, names: Mapping[Single, str]) -> Any:
    if isinstance(argument, Many):
        return [_argument(item, names) for item in argument.items]
    if argument in names:
        return f"<{names[argument]}>"
    match argument:
        case Reference(task_id, output):
            return f"<{output}>-{task_id}"
        case Text(text) | Json(text):
            return shortened(text, TEXT_CHARACTERS)
        case Input(name) | File(name=name):
            return f"<{name}>"
        case _:
            return None


def _parameters(parameters_json: str) -> dict[str, Any]:
    parameters = json.loads(parameters_json or "{}")
    return parameters if isinstance(parameters, dict) else {}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False)
