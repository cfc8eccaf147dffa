"""Options shared by several commands."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import shell_completion

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
        metavar="NAME", help="Name of the pipeline; NAME@2 is version 2.", autocompletion=shell_completion.pipelines
    ),
]
Pin = Annotated[
    bool, typer.Option("--pin", help="Run the saved plan only on the models that ran it, or that would run it now.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Most entries to list.")]
NextPage = Annotated[
    str, typer.Option("--page", metavar="PAGE", help="Page token printed at the end of the previous page.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", autocompletion=shell_completion.runs)]

RunOrBatchId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of the run or batch.", autocompletion=shell_completion.runs_and_batches),
]


class Policy(StrEnum):
    """Whether data may leave the deployment."""

    LOCAL = "local"
    OPEN = "open"


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
