"""Verdicts as totals and tables. Of the held-out cases only totals are reported."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.eval.answers.cases import CaseSet
from tests.eval.answers.judge import Verdict
from tests.eval.answers.run import Outcome
from tests.eval.metrics import percent, quantile

GROUPS: Mapping[str, Callable[[Outcome], str]] = {
    "task": lambda outcome: outcome.case.task,
    "kind": lambda outcome: outcome.case.kind,
    "language": lambda outcome: outcome.case.language,
}

MAX_ANSWER = 400
"""Characters of an answer in the list of cases."""


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Number of cases, and count and percentage of each verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    shares = {f"{verdict}_percent": percent(counts[verdict], len(outcomes)) for verdict in Verdict}
    return {"n": len(outcomes), **{str(verdict): counts[verdict] for verdict in Verdict}, **shares}


def grouped(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, Any]]]:
    """Totals by task, kind and language."""
    return {name: _by(outcomes, key) for name, key in GROUPS.items()}


def figures(outcomes: Mapping[CaseSet, Sequence[Outcome]]) -> dict[str, Any]:
    """The report as JSON: everything about the development cases, totals of the held-out ones.

    Args:
        outcomes: by set; a set without any is left out.
    """
    found: dict[str, Any] = {}
    if development := outcomes[CaseSet.DEVELOPMENT]:
        seconds = [outcome.seconds for outcome in development]
        found["development"] = {
            **totals(development),
            "p50_seconds": quantile(seconds, 0.5),
            "p95_seconds": quantile(seconds, 0.95),
            **{f"by_{name}": groups for name, groups in grouped(development).items()},
            "cases": [outcome.record() for outcome in development],
        }
    return found | {str(case_set): totals(some) for case_set, some in outcomes.items() if case_set.is_held_out and some}


def show(outcomes: Mapping[CaseSet, Sequence[Outcome]], console: Console) -> None:
    """Prints the tables of the development cases, and the totals of all sets."""
    if development := outcomes[CaseSet.DEVELOPMENT]:
        for name, groups in grouped(development).items():
            console.print(_table(f"Development cases by {name}", name, groups))
    sets = {case_set.replace("_", " "): totals(found) for case_set, found in outcomes.items() if found}
    console.print(_table("Answers", "cases", sets))


def show_kinds(held_out: Sequence[Outcome], console: Console) -> None:
    """Prints counts of the held-out cases by kind, for a final report."""
    console.print(_table("Held-out cases by kind", "kind", _by(held_out, GROUPS["kind"])))


def list_cases(outcomes: Iterable[Outcome], console: Console) -> None:
    """Prints request, expectation, verdict and answer of each case."""
    for outcome in outcomes:
        case = outcome.case
        files = f" [{', '.join(case.files)}]" if case.files else ""
        console.print(f"\n[bold]{case.id} {outcome.verdict}[/bold] ({case.kind}, {case.task}, {outcome.state})")
        console.print(f"  request:  {escape(case.request.text + files)}")
        console.print(f"  expected: {escape(case.expected)}")
        console.print(f"  tasks:    {', '.join(outcome.tasks) or 'none'}")
        console.print(f"  failed:   {escape('; '.join(outcome.judgement.failures)) or 'nothing was declined'}")
        console.print(f"  answer:   {escape(' '.join(outcome.answer.split())[:MAX_ANSWER])}")


def _by(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(map(key, outcomes))
    return {name: totals([outcome for outcome in outcomes if key(outcome) == name]) for name in names}


def _table(title: str, name: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(name, *("cases", "right", "declined", "wrong but sure", "right %", "wrong but sure %"), title=title)
    for group, figure in groups.items():
        counts = (figure[key] for key in ("n", *Verdict))
        shares = (figure[f"{verdict}_percent"] for verdict in (Verdict.RIGHT, Verdict.WRONG))
        table.add_row(group, *map(str, counts), *(f"{share:.1f}" for share in shares))
    return table
