"""`python -m tests.eval.answers` measures answers end to end, without an LLM; part of `make eval`."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from gateway.client import HuggingGPTError
from tests.eval.answers import report
from tests.eval.answers.cases import BadCases, Case, CaseSet, read
from tests.eval.answers.judge import Verdict
from tests.eval.answers.run import Outcome, local_stack
from tests.eval.answers.run import outcomes as run_cases

OUT = Path("out/eval-answers.json")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.eval.answers",
        description="Sends requests with files to a local stack with the lite expert and judges the answers.",
    )
    parser.add_argument("--set", type=CaseSet, choices=tuple(CaseSet), help="only this set (default: all)")
    parser.add_argument("--case", nargs="+", metavar="ID", help="only these development cases, with their answers")
    parser.add_argument("--list", type=Verdict, choices=tuple(Verdict), help="list development cases with this verdict")
    parser.add_argument("--held-out-kinds", action="store_true", help="counts of held-out cases by kind")
    parser.add_argument("--url", help="use this gateway instead of a new local stack")
    parser.add_argument("--concurrency", type=int, default=2, metavar="N", help="cases at a time (default: 2)")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(given)


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """The cases that the command line asks for.

    Raises:
        BadCases: there is no such development case, or the data is invalid.
    """
    if options.case:
        development = {case.id: case for case in read(CaseSet.DEVELOPMENT)}
        if unknown := [name for name in options.case if name not in development]:
            raise BadCases(f"there is no development case {', '.join(unknown)}: give ids such as {min(development)}")
        return [development[name] for name in options.case]
    return [case for case_set in ([options.set] if options.set else CaseSet) for case in read(case_set)]


def main(options: argparse.Namespace) -> None:
    """Runs the chosen cases, writes and prints the report."""
    cases, sets = chosen_cases(options), {case.id: case_set for case_set in CaseSet for case in read(case_set)}
    with ExitStack() as stack:
        url = options.url or stack.enter_context(local_stack())
        found = asyncio.run(run_cases(cases, url, concurrency=options.concurrency, quiet=options.quiet))
    by_set = {case_set: [one for one in found if sets[one.case.id] is case_set] for case_set in CaseSet}
    text = json.dumps(report.figures(by_set), ensure_ascii=False)
    if not options.case:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        _print(options, by_set)


def _print(options: argparse.Namespace, outcomes: Mapping[CaseSet, Sequence[Outcome]]) -> None:
    console = Console(width=120)
    report.show(outcomes, console)
    if options.held_out_kinds:
        report.show_kinds([one for case_set in CaseSet if case_set.is_held_out for one in outcomes[case_set]], console)
    if options.case or options.list:
        wanted = [outcome for outcome in outcomes[CaseSet.DEVELOPMENT] if options.list in (None, outcome.verdict)]
        report.list_cases(wanted, console)


def exit_status(options: argparse.Namespace) -> str | None:
    """Runs the evaluation; returns the error that stopped it."""
    found: list[str] = []
    try:
        main(options)
    except* (BadCases, HuggingGPTError) as errors:
        found += map(str, errors.exceptions)
    return "; ".join(dict.fromkeys(found)) or None


if __name__ == "__main__":
    sys.exit(exit_status(arguments(sys.argv[1:])))
