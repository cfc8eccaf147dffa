"""What a plan is built from: steps that rules find, and graphs of them."""

from dataclasses import dataclass

from services.planner.embedded.clauses import Clause
from services.planner.embedded.streams import Stream
from services.planner.task_spec import Spec


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a clause asks for."""

    spec: Spec
    clause: Clause
    labels: tuple[str, ...] = ()
    """The classes to choose from, where the clause names some."""
    aspect: str = ""
    """Distinguishes uses of one task on the same input, such as sentiment and language."""
    fed: tuple[Stream, ...] | None = None
    """The outputs that it takes; () if it takes what was sent, None if the words decide."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph of steps: the steps of one intent, all fed by the outputs of the same other nodes."""

    intent: str
    steps: tuple[Step, ...]
    clause: Clause
    """The clause that calls for the intent."""
    producers: tuple[str, ...] = ()
    """Intents of the nodes that feed it; empty if it takes what was sent."""
