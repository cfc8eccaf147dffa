"""Comparison of plans with their labels; of several right plans, the most similar one is used."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.planner.plan import Draft
from services.planner.plan_check import references
from tests.eval import argument_values
from tests.eval.lines import Answer, Graph, Line
from tests.eval.metrics import Tally
from tests.eval.planners import Outcome
from tests.eval.tools import Spelling, names


@dataclass(frozen=True, slots=True)
class Compared:
    """A line with its plan, and the right plan that is most similar."""

    line: Line
    outcome: Outcome
    plan: Graph
    answer: Answer | None

    @property
    def draft(self) -> Draft:
        return self.outcome.draft

    @property
    def right(self) -> bool:
        """Whether the graph is right, regardless of arguments."""
        return self.answer is not None and self.plan.same(self.answer.graph)


def compare(lines: Sequence[Line], outcomes: Sequence[Outcome], written: Spelling) -> list[Compared]:
    """Compares every line with its outcome, in order."""
    plans = [graph(outcome.draft, written) for outcome in outcomes]
    return [
        Compared(line, outcome, plan, _most_similar(line, outcome, plan))
        for line, outcome, plan in zip(lines, outcomes, plans, strict=True)
    ]


def graph(draft: Draft, written: Spelling) -> Graph:
    """The graph of a plan with the task names of the file; every link once."""
    named = names(draft, written)
    links = {(named[r.task_id], named[task.id]): None for task in draft.tasks for r in references(task)}
    return Graph(tuple(named.values()), tuple(links))


def _most_similar(line: Line, outcome: Outcome, plan: Graph) -> Answer | None:
    def similarity(answer: Answer) -> tuple[bool, float, float]:
        parts = Tally.of_sets([(plan.nodes | plan.edges, answer.graph.nodes | answer.graph.edges)]).f1
        planned, expected = argument_values.comparable(outcome, answer)
        values = Tally.of_bags([(argument_values.triples(planned), argument_values.triples(expected))]).f1
        return plan.same(answer.graph), parts or 0.0, values or 0.0

    return max(line.answers, key=similarity, default=None)
