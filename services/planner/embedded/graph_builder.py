"""From a graph that was read to tasks: rules find what each is given, the graph settles which feeds which."""

from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from services.planner.embedded import note_texts
from services.planner.embedded.clauses import Clause
from services.planner.embedded.intents import EDITING, intent, task_of
from services.planner.embedded.learned.reading import Reading
from services.planner.embedded.plan_builder import PlanBuilder
from services.planner.embedded.resources import Resource
from services.planner.embedded.rules import RuleDraft
from services.planner.embedded.steps import Step
from services.planner.embedded.streams import Stream, answers
from services.planner.plan import Draft, Many, Note, NoteKind
from services.planner.task_spec import Modality, Spec

_CHANGES = frozenset((EDITING, "image-to-image"))

GUESS = 0.5
"""A plan less certain than this may well be another."""


class Builder:
    """Builds what one request was read as.

    Args:
        drafted: what rules made of the request.
        builder: a fresh one for the same words.
        names: of all intents, in the order of their places.
    """

    def __init__(self, drafted: RuleDraft, builder: PlanBuilder, names: Sequence[str]) -> None:
        self._drafted = drafted
        self._builder = builder
        self._names = names
        self._intents: dict[int, str] = {}
        self._made: dict[int, tuple[Stream, ...]] = {}

    def build(self, reading: Reading, starts: Sequence[int]) -> Draft:
        """The tasks of a graph.

        Args:
            reading: what was read.
            starts: position of each token in the request, in characters.
        """
        position = reading.evidence.position
        feeding = {
            one: {source for source, target in reading.graph.links if target == one} for one in reading.graph.intents
        }
        sorter = TopologicalSorter(feeding)
        sorter.prepare()
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=lambda one: (float(position[one]), one))
            for one in ready:
                at = starts[min(round(float(position[one])), len(starts) - 1)] if starts else 0
                self._place(one, at, feeding[one])
                sorter.done(one)
        tasks, notes = tuple(self._builder.tasks), tuple(self._builder.notes)
        return Draft(tasks, notes, self._drafted.draft.decision, self._intents)

    def _place(self, one: int, at: int, feeding: set[int]) -> None:
        name = self._names[one]
        if not all(self._made[producer] for producer in feeding):
            self._builder.notes.append(self._lost(at, feeding))
            self._made[one] = ()
            return
        fed = tuple(stream for producer in sorted(feeding) for stream in self._made[producer])
        before = {task.id for task in self._builder.tasks}
        made: list[Stream] = []
        for step in self._steps(name, at):
            continues = bool(made) and name in _CHANGES  # the words say whether it changes what was just made
            made += self._builder.add(replace(step, fed=None if continues else fed))
        self._made[one] = tuple(made)
        fresh = [task for task in self._builder.tasks if task.id not in before]
        does = {task_of(name), task_of(name, picture=True)}
        self._intents |= {task.id: name for task in fresh if task.task in does or intent(task.task) == name}

    def _lost(self, at: int, feeding: set[int]) -> Note:
        missing = next(self._names[producer] for producer in sorted(feeding) if not self._made[producer])
        return note_texts.lost(self._clause(at), missing)

    def _steps(self, name: str, at: int) -> list[Step]:
        """What rules found of this intent, else one for the words that speak for it."""
        usual = self._spec(name)
        found = [step for step in self._drafted.steps if intent(step.spec.name) == intent(usual.name)]
        offered = [
            step if step.labels or self._builder.offers(step.spec) else replace(step, spec=usual) for step in found
        ]
        return offered or [Step(usual, self._clause(at, asking=answers(usual)))]

    def _spec(self, name: str) -> Spec:
        there = {kind for resource in self._drafted.resources for kind in resource.modalities[:1]}
        made = {stream.modality for streams in self._made.values() for stream in streams}
        task = task_of(name, picture=Modality.TABLE not in there and Modality.IMAGE in there | made)
        return self._builder.spec(task)

    def _clause(self, at: int, *, asking: bool = False) -> Clause:
        """The clause at a position, or nearest to it; the whole request if there is none.

        Args:
            at: position in the request.
            asking: whether clauses that ask are preferred.
        """
        clauses = [one for one in self._drafted.clauses if asking and one.asks] or self._drafted.clauses
        if not clauses:
            return whole(self._drafted)
        return min(clauses, key=lambda clause: max(clause.start - at, at - clause.end + 1, 0))


def whole(drafted: RuleDraft) -> Clause:
    """The request as one clause."""
    wording = drafted.wording
    return Clause(
        start=0,
        end=len(wording.text),
        words=wording.text.strip(),
        masked=wording.masked,
        sequel=False,
        matches=(),
        mentions=wording.mentions,
        payloads=wording.payloads,
        named=frozenset(),
        asks=wording.text.rstrip().endswith("?"),
    )


def lacks_more(built: Draft, draft: Draft) -> bool:
    """Whether less of the words could be built than rules could plan."""
    kinds = (NoteKind.UNMAPPED, NoteKind.CLARIFY)
    missing = [sum(note.kind in kinds for note in one.notes) for one in (built, draft)]
    return not built.tasks or missing[0] > missing[1]


def with_notes(drafted: RuleDraft, built: Draft, certainty: float) -> Draft:
    """A built draft with what rules had to say that still holds; what they say of its words holds if it is a guess."""
    before = drafted.draft.notes
    if not built.tasks:
        words = drafted.wording.text.strip()
        return replace(built, notes=before or (note_texts.without_request(words, drafted.resources),))
    sources = {task.source for task in built.tasks} if certainty >= GUESS else set()
    used = [one for one in drafted.resources if _carries(built, one)]
    sources |= {note.span for note in built.notes}
    kept = [note for note in before if note.kind is not NoteKind.CHAT and note.span not in sources]
    kept = [note for note in kept if not any(name in note.text for one in used for name in one.names)]
    mentioned = " ".join(note.text for note in (*built.notes, *kept))
    unused = [one for one in drafted.resources if one.names and not one.age and one not in used]
    if silent := [one for one in unused if one.names[0] not in mentioned]:
        kept.append(note_texts.left_out(silent))
    return replace(built, notes=tuple(dict.fromkeys((*built.notes, *kept))))


def _carries(built: Draft, resource: Resource) -> bool:
    given = (argument for task in built.tasks for argument in task.arguments.values())
    return any(resource.argument in (one.items if isinstance(one, Many) else (one,)) for one in given)
