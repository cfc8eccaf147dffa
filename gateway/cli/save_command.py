"""hugginggpt save, and ask --save: the plan of a run is kept under a name."""

import re

from rich.text import Text

from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.follow import Answered
from gateway.cli.live_view import one_line
from gateway.cli.run_commands import asking
from gateway.client import HuggingGPT, HuggingGPTError, Pipeline
from gateway.client.options import DataPolicy

DESCRIBED = 500
"""Letters of a request that describe the pipeline kept of it."""

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")


def check_name(name: str) -> None:
    """Raises Problem if a pipeline cannot be called that."""
    if not _NAME.fullmatch(name):
        remedy = "use lower-case letters, digits, '.', '-' and '_', a letter first, 63 at most"
        raise Problem(f"{name!r} is no name for a pipeline", remedy=remedy, status=USAGE)


def keep(house: HuggingGPT, answered: Answered, name: str, words: str, *, policy: DataPolicy | None, pin: bool) -> None:
    """Keeps the plan of a run that has completed, or tells why it does not."""
    run = answered.run
    if not run.completed:
        remedy = f"if it is good nevertheless: hugginggpt save {run.run_id} {name}"
        answered.unkept = Problem(f"the plan is not kept as {name}: the run is {run.status}", remedy=remedy)
        return
    try:
        said = words.strip()[:DESCRIBED]
        answered.kept = house.save_pipeline(name, run.run_id, description=said, policy=policy, pin_models=pin)
    except HuggingGPTError as error:
        answered.unkept = Problem.of(error)


def save(
    run_id: str, name: str, description: str, url: str | None, api_key: str | None, *, pin: bool, as_json: bool
) -> None:
    """Keeps the plan of a run."""
    check_name(name)
    with asking(url, api_key) as house:
        kept = house.save_pipeline(name, run_id, description=description, pin_models=pin)
    tell(kept, as_json=as_json)


def tell(kept: Pipeline, *, as_json: bool) -> None:
    if as_json:
        terminal.tell_json(kept.model_dump(mode="json"))
        return
    told = terminal.out()
    told.print(Text.assemble("kept as ", (kept.name, "bold"), f", version {kept.version}"), soft_wrap=True)
    for port in kept.inputs:
        told.print(Text(f"  takes {one_line(port.name)}: {port.modality}", style="dim"), soft_wrap=True)
