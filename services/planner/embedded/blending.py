"""Blends rules and the learned graph: features from rules, and the choice between both plans."""

from collections.abc import Mapping

from services.planner.embedded.intents import intent, intents_of
from services.planner.embedded.learned.parsing import Graph
from services.planner.embedded.learned.reading import Reading
from services.planner.embedded.learned.stages import SENT, Hints
from services.planner.embedded.rules import RuleDraft
from services.planner.plan import NoteKind
from services.planner.plan_check import references

SURE, LIKELY = 0.9, 0.6
"""The certainty of rules all of whose words are plain, and what is enough where people send files of their own."""

TIMES_LIKELIER, ENOUGH = 10, 0.6
"""How much likelier than that of sure rules another graph must be, or how likely: else rules are right more often, as
cross-validation on our own requests showed."""

ENOUGH_FOR_QUESTIONS = 0.9
"""How likely another graph must be where rules found nothing but questions about what was sent."""

_READING = frozenset(("question-answering", "document-question-answering"))

HALF = 0.5
"""How often rules that are sure are right where what was learned says something else."""

GUESSES, GUESSES_ABOUT_FILES = 0.5, 0.3
"""What is less likely than this is not planned where rules found nothing; a file was sent to be worked on."""

AGREED, DISPUTED = 0.9, 0.7
"""What is left of the certainty where rules and the learned graph agree, and where they do not: on own requests, plans
that both arrive at are right more often than others of the same probability."""

PLACEHOLDER = "example"
"""How files are called in benchmarks and manuals, where rules made for people's own requests are no better."""


def hints(drafted: RuleDraft, places: Mapping[str, int]) -> Hints:
    """What rules make of a request, as far as its intents were learned, and what was sent with it."""
    draft = drafted.draft
    intents = {task_id: places[name] for task_id, name in intents_of(draft).items() if name in places}
    links = set[tuple[int, int]]()
    for task in draft.tasks:
        if task.id in intents:
            producers = [intents[one.task_id] for one in references(task) if one.task_id in intents]
            links |= {(producer, intents[task.id]) for producer in producers or [SENT]}
    names = _names(drafted)
    placeholders = any(name.startswith(PLACEHOLDER) for name in names)
    named = {mention.modality for mention in drafted.wording.mentions if not mention.target}
    return Hints(
        intents=frozenset(intents.values()),
        links=frozenset(link for link in links if link[0] != link[1]),
        refused=frozenset(places[name] for name in map(intent, drafted.refused) if name in places),
        certainty=draft.decision.confidence,
        left_open=any(note.kind is not NoteKind.TRIMMED for note in draft.notes),
        own_files=bool(names) and not placeholders,
        placeholders=placeholders,
        repeated=len(set(intents.values())) < len(intents),
        kinds=frozenset(named | {one.modalities[0] for one in drafted.resources if one.modalities and not one.age}),
    )


def _names(drafted: RuleDraft) -> list[str]:
    """What the files are called: as the words name them, else as they were sent."""
    named = [mention.name for mention in drafted.wording.mentions]
    return named or [name for one in drafted.resources for name in one.names[:1]]


def only_asks(drafted: RuleDraft) -> bool:
    """Whether all of a request are questions about texts and documents that were sent."""
    asks = all(clause.asks for clause in drafted.clauses)
    tasks = {step.spec.name for step in drafted.steps}
    return asks and bool(drafted.resources) and bool(tasks & _READING)


def agreement(reading: Reading, known: Hints) -> float:
    """The share of a plan's certainty that remains, by whether rules and the learned graph agree."""
    return AGREED if _graph(known) == reading.graph else DISPUTED


def _graph(known: Hints) -> Graph:
    """The graph that rules made."""
    return Graph(known.intents, frozenset(link for link in known.links if link[0] != SENT))


def standing(reading: Reading, known: Hints, *, asks: bool) -> float | None:
    """How sure the graph that rules made is; None if another is to be built.

    Args:
        reading: the learned graph.
        known: what rules found.
        asks: rules found nothing but questions about what was sent.
    """
    graph = _graph(known)
    probability = reading.graphs.get(graph, 0.0)
    if graph == reading.graph:
        return probability
    if known.repeated and reading.graph.intents == known.intents:
        return max(probability, HALF)
    if not (known.intents and reading.graph.intents):
        guess = GUESSES_ABOUT_FILES if known.kinds and reading.graph.intents else GUESSES
        return probability if reading.probability < guess else None
    if asks and not known.left_open and reading.probability < ENOUGH_FOR_QUESTIONS:
        return max(probability, HALF)
    plain = known.certainty >= (LIKELY if known.own_files else SURE)
    sure = plain and not (known.left_open or known.placeholders)
    outdone = reading.probability >= min(ENOUGH, TIMES_LIKELIER * probability)
    return None if outdone or not sure else max(probability, HALF)
