"""What is to be planned, one thing at a time."""

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
    """Tells apart two uses of one task on the same input, such as sentiment and language."""
    fed: tuple[Stream, ...] | None = None
    """What it works on, where that is settled; None where the words tell, () where it is what was sent."""
