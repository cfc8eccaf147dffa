"""Merges rules and the learned graph: features of the graph from rules, and the choice between both plans."""

from collections.abc import Iterable, Mapping

from services.planner.embedded.graph_steps import nodes
from services.planner.embedded.intents import intent, intents_of
from services.planner.embedded.learned.beam_search import Graph
from services.planner.embedded.learned.candidates import SENT, Hints
from services.planner.embedded.learned.features import tokens
from services.planner.embedded.learned.reading import Reading, read
from services.planner.embedded.learned.weights import Weights
from services.planner.embedded.plan_notes import GUESS, finished, with_confidence
from services.planner.embedded.rules import RuleReading
from services.planner.plan import Draft, Note, NoteKind
from services.planner.plan_check import references

MIN_CERTAINTY, MIN_CERTAINTY_WITH_OWN_FILES = 0.9, 0.6
"""Confidence from which the rules' plan is preferred, without and with files that have names of the user's own."""

MIN_PROBABILITY_RATIO, MIN_PROBABILITY = 10, 0.6
"""Ratio to the probability of the preferred plan, and probability, either of which another graph must have: else the
rules are right more often on plain requests."""

MIN_PROBABILITY_FOR_QUESTIONS = 0.9
"""Probability that another graph must have if rules found only questions about what was sent."""

ANSWERING = frozenset(("question-answering", "document-question-answering"))
"""Tasks that answer questions about a text or a document."""

PREFERRED_PLAN_PROBABILITY = 0.5
"""Least probability of a plan of the rules that is preferred to the learned graph."""

MIN_GRAPH_PROBABILITY, MIN_GRAPH_PROBABILITY_WITH_FILES = 0.5, 0.3
"""Probability from which a graph is planned if rules found nothing, without and with files, or if it is empty."""

AGREEMENT_FACTOR, DISAGREEMENT_FACTOR = 0.9, 0.7
"""Factor of the confidence if rules and the learned graph agree, and if they do not: on own requests, plans that both
arrive at are right more often than others of the same probability."""

PLACEHOLDER_PREFIX = "example"
"""Beginning of the names of files in benchmarks and manuals; other files are the user's own."""


def merged(rules: RuleReading, learned: Weights) -> Draft:
    """Returns the plan of a request: that of the rules, or that of the learned graph.

    Args:
        rules: what rules found in the request.
        learned: the trained weights.
    """
    draft = finished(rules.plan, rules, confidence=rules.confidence)
    indexes = {name: index for index, name in enumerate(learned.intents)}
    if rules.is_final or not set(intents_of(draft).values()) <= indexes.keys():
        return draft
    known = hints(rules, draft, indexes)
    reading = read(tokens(rules.wording), known, learned)
    agreed = AGREEMENT_FACTOR if _graph(known) == reading.graph else DISAGREEMENT_FACTOR
    answering = frozenset(indexes[name] for name in ANSWERING if name in indexes)
    probability = _rules_probability(
        reading, known, asks=_only_asks(rules, own_files=known.own_files), answering=answering
    )
    if probability is not None:
        return with_confidence(draft, probability * agreed)
    plan = rules.plan.empty()
    plan.add_nodes(nodes(reading, rules, learned.intents))
    leaves_out_files = known.own_files and len(plan.media.unused()) > len(rules.plan.media.unused())
    is_poorer = not plan.tasks or leaves_out_files or lacks_more(plan.notes, draft.notes)
    if draft.tasks and reading.graph.intents and is_poorer:
        return with_confidence(draft, draft.decision.confidence * agreed)
    return finished(plan, rules, confidence=reading.probability * agreed, is_guess=reading.probability < GUESS)


def hints(rules: RuleReading, draft: Draft, indexes: Mapping[str, int]) -> Hints:
    """Returns the learned graph's features from rules and from what was sent.

    Args:
        rules: what rules found in the request.
        draft: their plan.
        indexes: of the intents that were learned.
    """
    intents = {task_id: indexes[name] for task_id, name in intents_of(draft).items() if name in indexes}
    links = set[tuple[int, int]]()
    for task in draft.tasks:
        if task.id in intents:
            producers = [intents[one.task_id] for one in references(task) if one.task_id in intents]
            links |= {(producer, intents[task.id]) for producer in producers or [SENT]}
    names = _names(rules)
    placeholders = any(name.startswith(PLACEHOLDER_PREFIX) for name in names)
    named = {mention.modality for mention in rules.wording.mentions if not mention.target}
    return Hints(
        intents=frozenset(intents.values()),
        links=frozenset(link for link in links if link[0] != link[1]),
        refused=frozenset(indexes[name] for name in map(intent, rules.refused) if name in indexes),
        certainty=draft.decision.confidence,
        left_open=any(note.kind is not NoteKind.TRIMMED for note in draft.notes),
        own_files=bool(names) and not placeholders,
        placeholders=placeholders,
        repeated=len(set(intents.values())) < len(intents),
        kinds=frozenset(named | {one.modalities[0] for one in rules.resources if one.modalities and not one.age}),
    )


def _names(rules: RuleReading) -> list[str]:
    """Names of the files: as the words name them, else as they were sent."""
    named = [mention.name for mention in rules.wording.mentions]
    return named or [name for one in rules.resources for name in one.names[:1]]


def _only_asks(rules: RuleReading, *, own_files: bool) -> bool:
    """Whether the request consists of questions about texts and documents, or of orders to look up something in files.

    Args:
        rules: what rules found.
        own_files: whether the files have names of the user's own; orders in benchmarks ask for longer plans.
    """
    tasks = {step.spec.name for step in rules.steps}
    asks = all(clause.asks for clause in rules.clauses) or (own_files and tasks <= ANSWERING)
    return asks and bool(rules.resources) and bool(tasks & ANSWERING)


def _graph(known: Hints) -> Graph:
    """The graph of the rules' plan."""
    return Graph(known.intents, frozenset(link for link in known.links if link[0] != SENT))


def _rules_probability(reading: Reading, known: Hints, *, asks: bool, answering: frozenset[int]) -> float | None:
    """The probability of the rules' plan; None if the learned graph is planned instead.

    Args:
        reading: the learned graph.
        known: what rules found.
        asks: whether rules found only questions about what was sent.
        answering: intents that answer any question, so that rules that know a task for one are right more often.
    """
    graph = _graph(known)
    probability = reading.graphs.get(graph, 0.0)
    if graph == reading.graph:
        return probability
    is_overlooked = not reading.graph.intents and known.own_files and _is_complete(known, MIN_CERTAINTY)
    if (known.intents and is_overlooked) or (known.repeated and reading.graph.intents == known.intents):
        return max(probability, PREFERRED_PLAN_PROBABILITY)
    if not (known.intents and reading.graph.intents):
        least = MIN_GRAPH_PROBABILITY_WITH_FILES if known.kinds and reading.graph.intents else MIN_GRAPH_PROBABILITY
        return probability if reading.probability < least else None
    is_certain = known.certainty >= (MIN_CERTAINTY_WITH_OWN_FILES if known.own_files else MIN_CERTAINTY)
    is_question = asks or (is_certain and known.own_files and reading.graph.intents <= answering)
    if is_question and not known.left_open and reading.probability < MIN_PROBABILITY_FOR_QUESTIONS:
        return max(probability, PREFERRED_PLAN_PROBABILITY)
    is_graph_likelier = reading.probability >= min(MIN_PROBABILITY, MIN_PROBABILITY_RATIO * probability)
    if is_certain and not (is_graph_likelier or known.left_open or known.placeholders):
        return max(probability, PREFERRED_PLAN_PROBABILITY)
    return None


def _is_complete(known: Hints, least_certainty: float) -> bool:
    """Whether the rules' plan has at least a certainty, and covers the whole request."""
    return known.certainty >= least_certainty and not known.left_open


def lacks_more(notes: Iterable[Note], others: Iterable[Note]) -> bool:
    """Whether the notes of a plan leave more of the request open than those of another."""
    missing, missing_in_other = (
        sum(note.kind in (NoteKind.UNMAPPED, NoteKind.CLARIFY) for note in each) for each in (notes, others)
    )
    return missing > missing_in_other
