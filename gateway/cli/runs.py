"""The commands about runs that were started before."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Limit, NextPage, Out, PlanFile, RunId, RunOrBatchId, States, Url
from gateway.cli.shell_completion import everything


def watch(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Follow a run from its beginning to its end, or a batch. Leaving does not stop it.

    [bold]Example[/]

      hugginggpt watch run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 completed, or waiting for its approval; 1 any other end.
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_told():
        if resume_command.is_batch(run):
            raise typer.Exit(resume_command.watch(run, url, api_key, as_json=as_json))
        answered = run_commands.watch(run, terminal.view(as_json=as_json), url, api_key)
        terminal.tell(answered, as_json=as_json)
    raise typer.Exit(answered.status)


def runs(
    *,
    state: States = None,
    limit: Limit = 20,
    page: NextPage = "",
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first: id, state, when it was started, request.

    States: queued, running, awaiting_approval, completed, incomplete, failed, cancelled.

    [bold]Examples[/]

      hugginggpt runs

      hugginggpt runs --state running --state queued --json
    """
    from gateway.cli import run_commands, terminal

    with terminal.problems_told():
        run_commands.show([each.value for each in state or ()], limit, page, url, api_key, as_json=as_json)


def approve(
    run: RunId,
    *,
    plan: PlanFile = None,
    out: Out = Path("out"),
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Let a plan run that waits, follow it to its end, get the answer and the files.

    [bold]Examples[/]

      hugginggpt ask "Read this aloud" --file sign.png --review --json > plan.json

      hugginggpt approve run_19a2b3c4d5e6f708192a3b4

      hugginggpt approve run_19a2b3c4d5e6f708192a3b4 --plan plan.json

    Exit status: 0 completed; 1 any other end; 2 asked wrongly; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import run_commands, terminal

    with terminal.problems_told():
        answered = run_commands.approve(run, plan, out, terminal.view(as_json=as_json), url=url, api_key=api_key)
        terminal.tell(answered, as_json=as_json)
        if answered.unsaved:
            raise answered.unsaved
    raise typer.Exit(answered.status)


def cancel(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Ask a run or a batch to stop. What has finished is kept; hugginggpt resume has a batch go on.

    [bold]Example[/]

      hugginggpt cancel run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 asked to stop, or cancelled before; 1 it had ended otherwise, so that nothing was cancelled.
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command
    from gateway.cli.errors import Problem
    from gateway.cli.run import ENDS

    with terminal.problems_told():
        cancel_it = resume_command.cancel if resume_command.is_batch(run) else run_commands.cancel
        state = cancel_it(run, url, api_key)
        if state in ENDS and state != "cancelled":
            if as_json:
                terminal.tell_json({resume_command.id_key(run): run, "cancelled": False, "state": state})
            raise Problem(f"{run} is already {state}: nothing was cancelled")
        terminal.tell_done(
            f"asked {run} to stop", {resume_command.id_key(run): run, "cancelled": True}, as_json=as_json
        )


def get(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="A run or a batch, the id of a file, or the SHA-256 of an artifact."),
    ],
    *,
    out: Out = Path("out"),
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Save what a run made, the results of a batch as it stands, a kept file, or an artifact. No file is written over.

    [bold]Examples[/]

      hugginggpt get run_19a2b3c4d5e6f708192a3b4 --out speech

      hugginggpt get file_5d1c2f8e7a9b40d3c6e1f2a3
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_told():
        if resume_command.is_batch(what):
            raise typer.Exit(resume_command.get(what, out, url, api_key, as_json=as_json))
        run_commands.get(what, out, url, api_key, as_json=as_json)


def delete(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A run, a batch, or a pipeline: NAME, or NAME@2 for one of its versions.",
            autocompletion=everything,
        ),
    ],
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Remove a run that has ended, for good; or a batch with all its runs; or a pipeline.

    [bold]Examples[/]

      hugginggpt delete run_19a2b3c4d5e6f708192a3b4

      hugginggpt delete read-aloud
    """
    from gateway.cli import delete_command, terminal

    with terminal.problems_told():
        kind = delete_command.delete(what, url, api_key)
        terminal.tell_done(f"deleted {what}", {kind: what, "deleted": True}, as_json=as_json)
