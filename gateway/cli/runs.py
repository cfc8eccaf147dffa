"""Commands for existing runs."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Limit, NextPage, Out, PlanFile, RunId, RunOrBatchId, States, Url
from gateway.cli.shell_completion import all_ids


def watch(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Follow a run or a batch from its start to its end. Ctrl-C does not cancel it.

    [bold]Example[/]

      hugginggpt watch run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 completed, or awaiting approval; 1 any other end.
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_reported():
        if resume_command.is_batch(run):
            raise typer.Exit(resume_command.watch(run, url, api_key, as_json=as_json))
        answered = run_commands.watch(run, terminal.view(as_json=as_json), url, api_key)
        terminal.print_result(answered, as_json=as_json)
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
    """List runs, newest first: id, state, creation time, request.

    States: queued, running, awaiting_approval, completed, incomplete, failed, cancelled.

    [bold]Examples[/]

      hugginggpt runs

      hugginggpt runs --state running --state queued --json
    """
    from gateway.cli import run_commands, terminal

    with terminal.problems_reported():
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
    """Approve the plan of a run, follow the run to its end, print the answer and save the files.

    [bold]Examples[/]

      hugginggpt ask "Read this aloud" --file sign.png --review --json > plan.json

      hugginggpt approve run_19a2b3c4d5e6f708192a3b4

      hugginggpt approve run_19a2b3c4d5e6f708192a3b4 --plan plan.json

    Exit status: 0 completed; 1 any other end; 2 invalid arguments; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import run_commands, terminal

    with terminal.problems_reported():
        answered = run_commands.approve(run, plan, out, terminal.view(as_json=as_json), url=url, api_key=api_key)
        terminal.print_result(answered, as_json=as_json)
        if answered.save_problem:
            raise answered.save_problem
    raise typer.Exit(answered.status)


def cancel(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Cancel a run or a batch. Finished results are kept; hugginggpt resume continues a batch.

    [bold]Example[/]

      hugginggpt cancel run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 cancellation requested, or already cancelled; 1 it had already ended otherwise.
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command
    from gateway.cli.errors import Problem
    from gateway.cli.run import END_STATES

    with terminal.problems_reported():
        cancel_it = resume_command.cancel if resume_command.is_batch(run) else run_commands.cancel
        state = cancel_it(run, url, api_key)
        if state in END_STATES and state != "cancelled":
            if as_json:
                terminal.print_json({resume_command.id_key(run): run, "cancelled": False, "state": state})
            raise Problem(f"{run} is already {state}: nothing was cancelled")
        terminal.print_done(
            f"requested cancellation of {run}", {resume_command.id_key(run): run, "cancelled": True}, as_json=as_json
        )


def get(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="Id of a run, batch or file, or the SHA-256 of an artifact."),
    ],
    *,
    out: Out = Path("out"),
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Save the files of a run, the results of a batch so far, a stored file, or an artifact. No file is overwritten.

    [bold]Examples[/]

      hugginggpt get run_19a2b3c4d5e6f708192a3b4 --out speech

      hugginggpt get file_5d1c2f8e7a9b40d3c6e1f2a3
    """
    from gateway.cli import run_commands, terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_reported():
        if resume_command.is_batch(what):
            raise typer.Exit(resume_command.get(what, out, url, api_key, as_json=as_json))
        run_commands.get(what, out, url, api_key, as_json=as_json)


def delete(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Id of a run or batch, or a pipeline: NAME, or NAME@2 for one version.",
            autocompletion=all_ids,
        ),
    ],
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Delete a finished run, a batch with all its runs, or a pipeline. This cannot be undone.

    [bold]Examples[/]

      hugginggpt delete run_19a2b3c4d5e6f708192a3b4

      hugginggpt delete read-aloud
    """
    from gateway.cli import delete_command, terminal

    with terminal.problems_reported():
        kind = delete_command.delete(what, url, api_key)
        terminal.print_done(f"deleted {what}", {kind: what, "deleted": True}, as_json=as_json)
