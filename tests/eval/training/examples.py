"""Training examples from labelled requests: tokens, the right graph, and hints from the planner's rules."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.planner.embedded.intents import EDITING, intent
from services.planner.embedded.learned.candidates import SENT, Hints
from services.planner.embedded.learned.features import Token, tokens
from services.planner.embedded.merging import hints
from services.planner.embedded.plan_notes import finished
from services.planner.embedded.rules import Rules
from services.planner.task_spec import Catalogue, standard_specs
from tests.eval.attached import request
from tests.eval.lines import Answer, Line
from tests.eval.tools import SENSES, catalogue, spelling

TASKS_OF_RULES = frozenset(("text-statistics", "page-count", "calculation", "image-conversion", "audio-conversion"))
"""Standard tasks that only rules of the embedded planner recognize: no labelled request has them."""


@dataclass(frozen=True)
class Example:
    """One request; intents (intents) are indices into the list of all."""

    tokens: list[Token]
    intents: tuple[int, ...]
    """In the order of the label."""
    links: tuple[tuple[int, int], ...]
    hints: Hints

    @property
    def first(self) -> frozenset[int]:
        """Intents that take only the request's own inputs."""
        return frozenset(self.intents) - {consumer for _, consumer in self.links}

    @property
    def last(self) -> frozenset[int]:
        """Intents whose outputs no other task takes."""
        return frozenset(self.intents) - {producer for producer, _ in self.links}


def examples(lines: Sequence[Line], intents: Sequence[str]) -> list[Example]:
    """Examples of the labelled lines in order; requests without a plan have no intents."""
    rules, offered = Rules(standard_specs()), catalogue(spelling(lines))
    indexes = {name: index for index, name in enumerate(intents)}
    return [_example(line, line.label, rules, offered, indexes) for line in lines if line.label]


def read_as(answer: Answer) -> list[str]:
    """The intent of each task of a label; a task with an instruction edits an image."""
    given = answer.arguments or ({},) * len(answer.graph.tasks)
    named = zip(answer.graph.tasks, given, strict=True)
    return [EDITING if values.get("instruction") else SENSES.get(task) or intent(task) for task, values in named]


def _example(line: Line, answer: Answer, rules: Rules, offered: Catalogue, indexes: dict[str, int]) -> Example:
    reading = rules.read(request(line), offered)
    named = dict(zip(answer.graph.tasks, read_as(answer), strict=True))
    known = {task: indexes[name] for task, name in named.items() if name in indexes}
    links = {
        (known[source], known[target]) for source, target in answer.graph.links if source in known and target in known
    }
    return Example(
        tokens(reading.wording),
        tuple(dict.fromkeys(known.values())),
        tuple(sorted(link for link in links if link[0] != link[1])),
        hints(reading, finished(reading.plan, reading, confidence=reading.confidence), indexes),
    )


def sent(links: Iterable[tuple[int, int]], intents: Iterable[int]) -> set[tuple[int, int]]:
    """The links, with additional ones from the request's inputs."""
    fed = {consumer for _, consumer in links}
    return {*links, *((SENT, one) for one in intents if one not in fed)}
