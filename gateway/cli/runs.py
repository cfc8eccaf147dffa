"""Commands for existing runs: watch, list, approve, cancel, get and delete."""

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from gateway.cli import batches, terminal
from gateway.cli.connect import connected_gateway, gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.options import (
    ApiKey,
    Json,
    Limit,
    NextPage,
    Out,
    PlanFile,
    RunId,
    RunOrBatchId,
    States,
    Url,
    complete_all_ids,
)
from gateway.cli.terminal import one_line

if TYPE_CHECKING:
    from gateway.cli.follow import FollowedRun
    from gateway.cli.live_view import View
    from gateway.client import Artifact, HuggingGPT, Run, StoredFile

RUN_PREFIX = "run_"
"""Prefix of run ids."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


def watch(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Follow a run or a batch from its start to its end. Ctrl-C does not cancel it.

    [bold]Example[/]

      hugginggpt watch run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 completed, or awaiting approval; 1 any other end.
    """
    from gateway.cli import follow, live_view

    with terminal.problems_reported():
        if batches.is_batch(run):
            raise typer.Exit(batches.watch(run, url, api_key, as_json=as_json))
        followed = _watch(run, live_view.view(as_json=as_json), url, api_key)
        follow.print_result(followed, as_json=as_json)
    raise typer.Exit(followed.status)


def _watch(run_id: str, view: "View", url: str | None, api_key: str | None) -> "FollowedRun":
    """Follows a run; Ctrl-C does not cancel it."""
    from gateway.cli import follow

    followed = follow.FollowedRun()
    try:
        with gateway(url, view.busy, api_key) as client, closing(client.watch(run_id)) as events:
            view.busy("connecting to the run")
            follow.follow(client, events, followed.progress, view)
    except KeyboardInterrupt:
        raise Problem("stopped watching; the run continues", status=INTERRUPTED) from None
    finally:
        view.close()
    return followed


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
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            listed = client.runs(states=[each.value for each in state or ()], page_size=limit, page_token=page)
        if as_json:
            terminal.print_page("runs", listed)
        else:
            for run in listed:
                terminal.print_row(_line(run))
            terminal.print_next_page("hugginggpt runs", listed.next)


def _line(run: "Run") -> Text:
    created = run.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if run.create_time else ""
    request = one_line(" ".join(str(run.spec.get("request", "")).split()))
    return Text.assemble((run.run_id, "bold"), f"  {run.state:<17}  {created}  ", (request[:80], "dim"))


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
    from gateway.cli import follow, live_view

    with terminal.problems_reported():
        followed = _approve(run, plan, out, live_view.view(as_json=as_json), url=url, api_key=api_key)
        follow.print_result(followed, as_json=as_json)
        if followed.save_problem:
            raise followed.save_problem
    raise typer.Exit(followed.status)


def _approve(
    run_id: str, plan: Path | None, out: Path, view: "View", *, url: str | None, api_key: str | None
) -> "FollowedRun":
    """Approves the plan of a run, follows the run to its end and saves its files. Ctrl-C cancels the run."""
    from gateway.cli import follow, request_files

    tasks = request_files.read_plan(plan) if plan else None
    follow.open_folder(out)
    followed = follow.FollowedRun()
    try:
        with gateway(url, view.busy, api_key) as client, follow.cancel_on_interrupt(client, followed.progress):
            view.busy("approving")
            client.approve(run_id, tasks)
            with closing(client.watch(run_id)) as events:
                follow.follow(client, events, followed.progress, view, is_approved=True)
            follow.save(client, followed, out)
    finally:
        view.close()
    return followed


def cancel(run: RunOrBatchId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Cancel a run or a batch. Finished results are kept; hugginggpt resume continues a batch.

    [bold]Example[/]

      hugginggpt cancel run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 cancellation requested, or already cancelled; 1 it had already ended otherwise.
    """
    from gateway.client.models import END_STATES

    id_key = "batch_id" if batches.is_batch(run) else "run_id"
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            if batches.is_batch(run):
                client.cancel_batch(run)
                state = client.batch(run).state
            else:
                client.cancel(run)
                state = client.get(run).state
        if state in END_STATES and state != "cancelled":
            if as_json:
                terminal.print_json({id_key: run, "cancelled": False, "state": state})
            raise Problem(f"{run} is already {state}: nothing was cancelled")
        terminal.print_done(f"requested cancellation of {run}", {id_key: run, "cancelled": True}, as_json=as_json)


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
    with terminal.problems_reported():
        if batches.is_batch(what):
            raise typer.Exit(batches.get(what, out, url, api_key, as_json=as_json))
        paths = _save_files(what, out, url, api_key)
        if as_json:
            terminal.print_json({"saved": [str(path) for path in paths]})
        for path in paths if not as_json else ():
            terminal.out().print(f"saved {one_line(str(path))}", soft_wrap=True)


def _save_files(what: str, out: Path, url: str | None, api_key: str | None) -> list[Path]:
    """Saves the files of a run, a stored file or an artifact.

    Raises:
        Problem: there are no files, or they cannot be written.
    """
    from gateway.cli import follow

    follow.open_folder(out)
    with connected_gateway(url, api_key) as client:
        paths = client.save(_source(client, what), out)
    if not paths:
        raise Problem(f"{what} has no output files", remedy=f"print its answer: hugginggpt watch {what}")
    return paths


def _source(client: "HuggingGPT", what: str) -> "Run | StoredFile | Artifact":
    if _DIGEST.fullmatch(what):
        return client.artifact(what)
    return client.file(what) if what.startswith("file_") else client.get(what)


def delete(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Id of a run or batch, or a pipeline: NAME, or NAME@2 for one version.",
            autocompletion=complete_all_ids,
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
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            kind = _delete(client, what)
        terminal.print_done(f"deleted {what}", {kind: what, "deleted": True}, as_json=as_json)


def _delete(client: "HuggingGPT", what: str) -> str:
    """Deletes a run, batch or pipeline; returns its key in the JSON output."""
    from gateway.client.models import reference

    if what.startswith(RUN_PREFIX):
        client.delete(what)
        return "run_id"
    if batches.is_batch(what):
        client.delete_batch(what)
        return "batch_id"
    target = reference(what)
    client.delete_pipeline(target["name"], target.get("version", 0))
    return "pipeline"
