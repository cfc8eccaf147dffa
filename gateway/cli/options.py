"""Options shared by several commands, with shell completion of ids and names.

Completions are requested from a running gateway; there are none if none runs.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.client import HuggingGPT

MAX_COMPLETIONS = 50
HELP_CHARACTERS = 60
"""Characters of a description."""

Completion = tuple[str, str]
"""A completion and its description."""


def complete_runs(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for run in client.runs(page_size=MAX_COMPLETIONS):
            yield run.run_id, " ".join(f"{run.state}: {run.spec.get('request', '')}".split())[:HELP_CHARACTERS]

    return _complete(context, incomplete, completions)


def complete_batches(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for batch in client.batches(page_size=MAX_COMPLETIONS):
            yield batch.batch_id, f"{batch.state}: {batch.counts.ended} of {batch.counts.total}"

    return _complete(context, incomplete, completions)


def complete_pipelines(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for pipeline in client.pipelines(page_size=MAX_COMPLETIONS):
            yield pipeline.name, " ".join(pipeline.description.split())[:HELP_CHARACTERS]

    return _complete(context, incomplete, completions)


def complete_runs_and_batches(context: typer.Context, incomplete: str) -> list[Completion]:
    return [*complete_runs(context, incomplete), *complete_batches(context, incomplete)]


def complete_all_ids(context: typer.Context, incomplete: str) -> list[Completion]:
    return [*complete_runs_and_batches(context, incomplete), *complete_pipelines(context, incomplete)]


def complete_experts(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for expert in client.fetch("/v1/experts")["data"]:
            yield expert["name"], ", ".join(expert.get("addresses", ()))

    return _complete(context, incomplete, completions)


def _complete(
    context: typer.Context, incomplete: str, completions: "Callable[[HuggingGPT], Iterator[Completion]]"
) -> list[Completion]:
    from gateway.client import HuggingGPT  # imported late so that other completions are fast

    try:
        with HuggingGPT(context.params.get("url"), context.params.get("api_key")) as client:
            client.greet()
            return [completion for completion in completions(client) if completion[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001  # completion never shows errors
        return []


STDIN = "-"
"""Argument that means standard input."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HUGGINGGPT_URL",
        metavar="URL",
        help="The gateway. Unset: http://127.0.0.1:8080; if none runs there, local services are started.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="HUGGINGGPT_API_KEY",
        metavar="KEY",
        show_envvar=True,
        help="API key, if the gateway requires one. An environment variable hides it from other users.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON object to standard output.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for output files.")]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Run this plan instead, such as the output of ask --json.")
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A file, pattern, URL or id of a stored file; - is standard input. Repeatable.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PARAMETER=VALUE", help="Value of a parameter; a file by path, URL or id. Repeatable."
    ),
]
PipelineName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the pipeline; NAME@2 is version 2.", autocompletion=complete_pipelines
    ),
]
Pin = Annotated[
    bool, typer.Option("--pin", help="Run the saved plan only on the models that ran it, or that would run it now.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Most entries to list.")]
NextPage = Annotated[
    str, typer.Option("--page", metavar="PAGE", help="Page token printed at the end of the previous page.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", autocompletion=complete_runs)]

RunOrBatchId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of the run or batch.", autocompletion=complete_runs_and_batches),
]


class Policy(StrEnum):
    """Whether data may leave the deployment."""

    LOCAL = "local"
    OPEN = "open"


class Media(StrEnum):
    """Where media are that a bulk job makes."""

    FILES = "files"
    COLUMNS = "columns"


class Mode(StrEnum):
    """Which models may run tasks."""

    LOCAL = "local"
    HYBRID = "hybrid"
    REMOTE = "remote"


class State(StrEnum):
    """State of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


States = Annotated[list[State] | None, typer.Option("--state", help="Only this state. Repeatable.")]
