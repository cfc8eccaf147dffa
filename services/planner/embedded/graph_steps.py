"""Nodes of a learned graph: each with the steps that rules found for its intent, else with a step for its words."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from services.planner.embedded.clauses import Clause
from services.planner.embedded.intents import intent, task_of
from services.planner.embedded.learned.reading import Reading
from services.planner.embedded.rules import RuleReading
from services.planner.embedded.steps import Node, Step
from services.planner.embedded.streams import answers
from services.planner.task_spec import Modality, Spec


def nodes(reading: Reading, rules: RuleReading, names: Sequence[str]) -> list[Node]:
    """Returns the nodes of a graph, producers first, else in the order of the words.

    Args:
        reading: with the graph.
        rules: what rules found in the same request.
        names: of all intents, in the order of their indexes.
    """
    producers = {
        one: {source for source, target in reading.graph.links if target == one} for one in reading.graph.intents
    }
    sorter = TopologicalSorter(producers)
    sorter.prepare()
    found: list[Node] = []
    while sorter.is_active():
        for one in sorted(sorter.get_ready(), key=lambda ready: (reading.position(ready), ready)):
            made = {port.modality for node in found for step in node.steps for port in step.spec.outputs}
            feeding = tuple(names[producer] for producer in sorted(producers[one]))
            found.append(_node(names[one], reading.start(one), feeding, rules, made))
            sorter.done(one)
    return found


def _node(name: str, at: int, producers: tuple[str, ...], rules: RuleReading, made: Collection[Modality]) -> Node:
    usual = _usual(name, rules, made)
    found = [step for step in rules.steps if intent(step.spec.name) == intent(usual.name)]
    offered = tuple(
        step if step.labels or rules.plan.offers(step.spec) else replace(step, spec=usual) for step in found
    )
    steps = offered or (Step(usual, _clause(rules, at, asking=answers(usual))),)
    return Node(name, steps, _clause(rules, at), producers)


def _usual(name: str, rules: RuleReading, made: Collection[Modality]) -> Spec:
    """The usual kind of task for an intent, given what was sent and what the nodes before it make."""
    sent = {kind for resource in rules.resources for kind in resource.modalities[:1]}
    has_picture = Modality.IMAGE in sent or Modality.IMAGE in made
    return rules.plan.spec(task_of(name, picture=has_picture and Modality.TABLE not in sent))


def _clause(rules: RuleReading, at: int, *, asking: bool = False) -> Clause:
    """The clause at a position, or nearest to it; the whole request if there is none.

    Args:
        rules: what rules found in the request.
        at: position in the request, in characters.
        asking: whether clauses that ask are preferred.
    """
    clauses = [one for one in rules.clauses if asking and one.asks] or rules.clauses
    if not clauses:
        return _whole(rules)
    return min(clauses, key=lambda clause: max(clause.start - at, at - clause.end + 1, 0))


def _whole(rules: RuleReading) -> Clause:
    """The request as one clause."""
    wording = rules.wording
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
