"""`python -m tests.eval FILE.jsonl` scores a planner on a file; without a file it prints the tables of `make eval`."""

import argparse
import asyncio
import importlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.common import logging
from services.common.call_context import use_caller
from tests.eval import judge, report
from tests.eval.lines import BadLines, read
from tests.eval.llm import NoEndpoint, ablation, by_llm
from tests.eval.planners import embedded, outcomes
from tests.eval.published import ROWS
from tests.eval.scoring import scores, write_predictions
from tests.eval.tools import catalogue, spelling, unknown

DATA = Path(__file__).parent / "data"
OUT = Path("out/eval.json")
PLANNERS = {"embedded": embedded, "llm": by_llm}
CROSS_VALIDATION = "tests.eval.crossval"
"""Module whose async figures(lines, quiet=) returns scoring.scores, with weights trained on other requests."""

FIVE_FOLD = "five-fold cross-validated"
AS_SHIPPED = "as shipped"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval", description="Evaluates planners.")
    parser.add_argument("file", nargs="?", type=Path, help="requests, one JSON object per line (default: all tables)")
    parser.add_argument("--planner", choices=("embedded", "llm"), default="embedded")
    parser.add_argument("--predictions", type=Path, metavar="OUT.jsonl", help="write the plans to this file")
    parser.add_argument("--ablation", choices=("demonstrations",), help="vary the demonstrations of the LLM planner")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(given)


async def evaluated(chosen: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Scores of one planner on one file."""
    lines = read(path)
    written = spelling(lines)
    if names := unknown(lines, written):
        sys.stderr.write(f"{path}: unknown task names count as missed labels: {', '.join(names)}\n")
    offered = catalogue(written)
    async with PLANNERS[chosen.planner]() as planner:
        found = await outcomes(planner, lines, offered, quiet=chosen.quiet)
    if chosen.predictions:
        write_predictions(chosen.predictions, lines, found, written)
    figures = scores(lines, found, written)
    figures["paper"]["judge"] = await judge.scores(lines, found, offered)
    return {"planner": chosen.planner, **figures}


async def table(chosen: argparse.Namespace) -> None:
    """Prints and writes the report of `make eval`: TaskBench, cross-validated if trained, and own requests."""
    path = DATA / "taskbench.jsonl"
    if chosen.planner == "embedded" and importlib.util.find_spec(CROSS_VALIDATION):
        cross_validation = importlib.import_module(CROSS_VALIDATION)
        taskbench, how = await cross_validation.figures(read(path), quiet=chosen.quiet), FIVE_FOLD
    else:
        taskbench, how = await evaluated(chosen, path), AS_SHIPPED
    own = await evaluated(chosen, DATA / "own.jsonl")
    text = json.dumps({"how": how, "taskbench": taskbench, "own": own, "published": [*map(asdict, ROWS)]})
    _write(text)
    if chosen.json:
        print(text)
    else:
        report.show(taskbench, own, how=how, console=Console(width=120))


def _write(text: str) -> None:
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(text + "\n", encoding="utf-8")


async def demonstrations(chosen: argparse.Namespace, path: Path) -> None:
    """Prints scores of the LLM planner by its demonstrations."""
    rows = await ablation(read(path), quiet=chosen.quiet)
    if chosen.json:
        print(json.dumps({"ablation": chosen.ablation, "rows": rows}))
    else:
        Console(width=120).print(report.ablation(rows))


async def main(chosen: argparse.Namespace) -> None:
    """Runs the chosen evaluation; naming an endpoint is consent to send it the requests, so the data policy is open."""
    with use_caller(Caller(tenant="default", policy=DATA_POLICY_OPEN)):
        if chosen.ablation:
            await demonstrations(chosen, chosen.file or DATA / "taskbench.jsonl")
        elif chosen.file is None:
            await table(chosen)
        else:
            print(json.dumps(await evaluated(chosen, chosen.file), ensure_ascii=False))


if __name__ == "__main__":
    logging.setup("eval", level="ERROR")
    try:
        asyncio.run(main(arguments(sys.argv[1:])))
    except (BadLines, NoEndpoint) as error:
        sys.exit(f"{error}")
