"""hugginggpt save and ask --save: saves the plan of a run as a pipeline."""

import re

from rich.text import Text

from gateway.cli import terminal
from gateway.cli.errors import USAGE, Problem
from gateway.cli.follow import FollowedRun
from gateway.cli.live_view import one_line
from gateway.cli.run_commands import connected_gateway
from gateway.client import HuggingGPT, HuggingGPTError, Pipeline
from gateway.client.options import DataPolicy

MAX_DESCRIPTION = 500
"""Characters of the request that become the pipeline's description."""

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")


def check_name(name: str) -> None:
    """Raises Problem if a name is not valid for a pipeline."""
    if not _NAME.fullmatch(name):
        remedy = "use at most 63 lower-case letters, digits, '.', '-' and '_', starting with a letter"
        raise Problem(f"{name!r} is not a valid pipeline name", remedy=remedy, status=USAGE)


def save_plan(
    client: HuggingGPT, answered: FollowedRun, name: str, request: str, *, policy: DataPolicy | None, pin: bool
) -> None:
    """Saves the plan of a completed run; stores the reason if that is impossible."""
    run = answered.run
    if not run.completed:
        remedy = f"to save it anyway: hugginggpt save {run.run_id} {name}"
        answered.pipeline_problem = Problem(f"the plan is not saved as {name}: the run is {run.status}", remedy=remedy)
        return
    try:
        description = request.strip()[:MAX_DESCRIPTION]
        answered.pipeline = client.save_pipeline(
            name, run.run_id, description=description, policy=policy, pin_models=pin
        )
    except HuggingGPTError as error:
        answered.pipeline_problem = Problem.of(error)


def save(
    run_id: str, name: str, description: str, url: str | None, api_key: str | None, *, pin: bool, as_json: bool
) -> None:
    """Saves the plan of a run."""
    check_name(name)
    with connected_gateway(url, api_key) as client:
        saved = client.save_pipeline(name, run_id, description=description, pin_models=pin)
    print_saved(saved, as_json=as_json)


def print_saved(saved: Pipeline, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(saved.model_dump(mode="json"))
        return
    console = terminal.out()
    console.print(Text.assemble("saved as ", (saved.name, "bold"), f", version {saved.version}"), soft_wrap=True)
    for port in saved.inputs:
        console.print(Text(f"  input {one_line(port.name)}: {port.modality}", style="dim"), soft_wrap=True)
