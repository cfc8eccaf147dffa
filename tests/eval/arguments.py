"""Scores of task arguments: files, texts, questions, languages and parameters."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.eval import argument_values
from tests.eval.argument_values import triples
from tests.eval.comparison import Compared
from tests.eval.metrics import Tally, percent


def scores(comparisons: Sequence[Compared]) -> dict[str, Any] | None:
    """Number of plans, and micro F1 in percent over all their arguments; None if no line labels arguments.

    argument_f1 compares task, port or parameter, and value; t_f1 only the first two; v_f1 task and value. (TaskBench's
    t-F1 and v-F1 have no ports: they use the type of a resource as its name.) right is the share of plans whose graph
    and arguments are all right.
    """
    labelled = [compared for compared in comparisons if compared.answer and compared.answer.arguments is not None]
    if not labelled:
        return None
    pairs = [argument_values.comparable(compared.outcome, compared.answer) for compared in labelled if compared.answer]

    def f1(*parts: int) -> float | None:
        return Tally.of_bags((triples(planned, parts), triples(expected, parts)) for planned, expected in pairs).f1

    return {
        "n": len(pairs),
        "argument_f1": f1(0, 1, 2),
        "t_f1": f1(0, 1),
        "v_f1": f1(0, 2),
        "right": percent(sum(compared.right and not is_wrong(compared) for compared in labelled), len(pairs)),
    }


def is_wrong(compared: Compared) -> bool:
    """Whether the arguments are labelled and differ from the label."""
    if compared.answer is None or compared.answer.arguments is None:
        return False
    planned, expected = argument_values.comparable(compared.outcome, compared.answer)
    return Counter(planned) != Counter(expected)
