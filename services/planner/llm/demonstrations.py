"""Requests with their plans, shown to an LLM as examples: those that are like a request, and not all alike."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from services.planner.llm.retrieval import Index, varied
from services.planner.plan import Catalogue

FILE = Path(__file__).parent.parent / "demonstrations.jsonl"

COUNT = 4
"""Shown with a request: more hardly help."""

VARIETY = 0.3
"""0 shows the most similar ones, 1 the least alike."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A request and its plan as an LLM should write it."""

    request: str
    files: tuple[str, ...]
    """Names of the files sent with it: file1, file2 …"""
    tasks: tuple[Mapping[str, Any], ...]
    """What stands in the plan's list: tasks and notes."""

    @property
    def names(self) -> frozenset[str]:
        """The kinds of task it uses."""
        return frozenset(task["task"] for task in self.tasks if "task" in task)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of task and remark it shows."""
        return self.names | {task["note"] for task in self.tasks if "note" in task}


class Demonstrations:
    """All there are."""

    def __init__(self, known: Sequence[Demonstration]) -> None:
        self._known = tuple(known)
        self._index = Index([f"{one.request} {' '.join(one.files)}" for one in self._known])

    @classmethod
    @cache
    def shipped(cls) -> Self:
        return cls(tuple(read(FILE.read_text(encoding="utf-8"))))

    @property
    def used(self) -> Mapping[str, int]:
        """How many of them use each kind of task."""
        return Counter(name for one in self._known for name in one.names)

    def like(
        self, words: str, catalogue: Catalogue, *, count: int = COUNT, variety: float = VARIETY
    ) -> list[Demonstration]:
        """Those most like the words, best first, of which every task is offered now."""
        scores = {
            position: score
            for position, score in enumerate(self._index.scores(words))
            if self._known[position].names <= catalogue.keys()
        }
        return [self._known[position] for position in varied(scores, self._likeness, count=count, variety=variety)]

    def _likeness(self, one: int, other: int) -> float:
        """By words and by kinds of task and remark, in equal parts."""
        ours, theirs = self._known[one].kinds, self._known[other].kinds
        return (self._index.likeness(one, other) + len(ours & theirs) / len(ours | theirs)) / 2


def read(lines: str) -> Iterator[Demonstration]:
    """The demonstrations written in lines of JSON."""
    for line in lines.splitlines():
        said = json.loads(line)
        yield Demonstration(said["request"], tuple(said["files"]), tuple(said["tasks"]))
