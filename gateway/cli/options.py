"""Options that several commands have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import shell_completion

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HUGGINGGPT_URL",
        metavar="URL",
        help="The gateway. Unset: the one at http://127.0.0.1:8080 or, if none runs, a house started for this command.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="HUGGINGGPT_API_KEY",
        metavar="KEY",
        show_envvar=True,
        help="Who asks, where the gateway wants to know. In the environment it is not seen by other users.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files made go.")]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Run this plan instead: what ask --json printed.")
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A file to send, a pattern, a URL or the id of a kept file; repeat it for more. - is standard input.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PARAMETER=VALUE", help="What a parameter is; a file by its path, URL or id. Repeat it."
    ),
]
PipelineName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name; NAME@2 is version 2.", autocompletion=shell_completion.pipelines),
]
Pin = Annotated[
    bool, typer.Option("--pin", help="What is kept only runs on the models that did it, or that would do it now.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")]
NextPage = Annotated[str, typer.Option("--page", metavar="PAGE", help="Go on where a list ended, which says so.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Its id.", autocompletion=shell_completion.runs)]

RunOrBatchId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Its id, or that of a batch.", autocompletion=shell_completion.runs_and_batches),
]


class Policy(StrEnum):
    """Whether bytes may leave the house."""

    LOCAL = "local"
    OPEN = "open"


class Mode(StrEnum):
    """Which models do the work."""

    LOCAL = "local"
    HYBRID = "hybrid"
    REMOTE = "remote"


class State(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


States = Annotated[list[State] | None, typer.Option("--state", help="Only those; repeat it for more.")]
