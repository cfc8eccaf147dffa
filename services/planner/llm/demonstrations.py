"""Demonstrations for the prompt: example requests with plans, similar to a request and varied."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from services.planner.llm.retrieval import SimilarityIndex, diversify
from services.planner.task_spec import Catalogue

FILE = Path(__file__).parent.parent / "demonstrations.jsonl"

COUNT = 4
"""Default number in a prompt; more improve plans little."""

VARIETY = 0.3
"""0 selects the most similar demonstrations, 1 the most varied."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An example request and its plan."""

    request: str
    files: tuple[str, ...]
    """Names of its files: file1, file2 …"""
    tasks: tuple[Mapping[str, Any], ...]
    """Entries of the plan's list: tasks and notes."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the tasks in the plan."""
        return frozenset(task["task"] for task in self.tasks if "task" in task)

    @property
    def kinds(self) -> frozenset[str]:
        """Names of tasks and kinds of notes in the plan."""
        return self.names | {task["note"] for task in self.tasks if "note" in task}


class Demonstrations:
    """Set of demonstrations, searchable by similarity."""

    def __init__(self, demonstrations: Sequence[Demonstration]) -> None:
        self._demonstrations = tuple(demonstrations)
        self._index = SimilarityIndex(
            [f"{demonstration.request} {' '.join(demonstration.files)}" for demonstration in self._demonstrations]
        )

    @classmethod
    @cache
    def shipped(cls) -> Self:
        return cls(tuple(read(FILE.read_text(encoding="utf-8"))))

    @property
    def used(self) -> Mapping[str, int]:
        """Number of demonstrations that use each task."""
        return Counter(name for demonstration in self._demonstrations for name in demonstration.names)

    def most_similar(
        self, words: str, catalogue: Catalogue, *, count: int = COUNT, variety: float = VARIETY
    ) -> list[Demonstration]:
        """Returns demonstrations similar to the text, best first, whose tasks are all in the catalogue."""
        scores = {
            position: score
            for position, score in enumerate(self._index.scores(words))
            if self._demonstrations[position].names <= catalogue.keys()
        }
        return [
            self._demonstrations[position]
            for position in diversify(scores, self._similarity, count=count, variety=variety)
        ]

    def _similarity(self, first: int, second: int) -> float:
        """Similarity of two demonstrations: the mean of text similarity and of shared tasks and notes."""
        ours, theirs = self._demonstrations[first].kinds, self._demonstrations[second].kinds
        return (self._index.similarity(first, second) + len(ours & theirs) / len(ours | theirs)) / 2


def read(lines: str) -> Iterator[Demonstration]:
    """Parses demonstrations from JSON lines."""
    for line in lines.splitlines():
        fields = json.loads(line)
        yield Demonstration(fields["request"], tuple(fields["files"]), tuple(fields["tasks"]))
