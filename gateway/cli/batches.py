"""Commands for batches: start, resume and list; watch and get for batches."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import terminal
from gateway.cli.connect import connected_gateway, gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.options import (
    ApiKey,
    Json,
    Limit,
    Mode,
    NextPage,
    PlanFile,
    Policy,
    Settings,
    States,
    Url,
    complete_batches,
)

if TYPE_CHECKING:
    from gateway.cli.batch.follow import FollowedBatch
    from gateway.cli.batch.live_view import View
    from gateway.cli.batch.output import Folder

PREFIX = "batch_"
"""Prefix of batch ids."""

OutFolder = Annotated[
    Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the results of this one batch.")
]


def batch(
    pipeline: Annotated[
        str, typer.Argument(metavar="NAME", help="The pipeline to run; NAME@2 is its second version.")
    ] = "",
    *,
    request: Annotated[
        str, typer.Option("--request", "-r", metavar="TEXT", help="Plan this request once, on the first item.")
    ] = "",
    plan: PlanFile = None,
    files: Annotated[
        list[str] | None, typer.Option("--files", "-f", metavar="PATTERN", help="Files, one per item. Repeatable.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="FOLDER",
            help="A folder whose files, also in subfolders, are the items. Hidden files are left out.",
        ),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv with a column per parameter, or a .jsonl; one item per line."),
    ] = None,
    settings: Settings = None,
    out: OutFolder = Path("out"),
    max_at_once: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Most items that run at the same time. Unset: no limit.")
    ] = None,
    policy: Annotated[
        Policy | None,
        typer.Option(help="local: no data leaves the deployment. Unset: the pipeline's or the gateway's default."),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="As in hugginggpt ask.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where the result of an earlier run could be reused.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run the plan of --request without confirmation.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run one plan on many inputs. Each item is a run of its own: an invalid file fails only its own item.

    Results go to --out in the order of the input: results.jsonl, results.csv, summary.json, and output files in files/,
    such as 0007-sign.audio.wav for the seventh item, sign.png. In --items, the column of a parameter that takes a file
    contains paths relative to the table, URLs, or ids of stored files; the column "name" names the item. Values of
    --set apply to all items. In results.csv, values that a spreadsheet would take for a formula start with an
    apostrophe; results.jsonl has them unchanged.

    [bold]Examples[/]

      hugginggpt batch read-aloud --files 'signs/*.png' --out spoken

      hugginggpt batch answer --items questions.csv --out answers

      hugginggpt batch --request "Summarise this" --folder letters --out summaries

      hugginggpt batch --plan run.json --folder photos --set language=en --out named

    Exit status: 0 every item completed; 1 any other end; 2 invalid arguments; 130 cancelled with Ctrl-C. The batch
    continues if this command is killed: hugginggpt resume follows it to its end and writes the results.
    """
    from gateway.cli.batch import report, start
    from gateway.cli.batch.live_view import view

    request_options = start.BatchRequest(
        out,
        pipeline=pipeline,
        request=request,
        plan=plan,
        patterns=files or [],
        folder=folder,
        manifest=items,
        settings=settings or [],
        max_at_once=max_at_once,
        policy=policy and policy.value,
        mode=mode and mode.value,
        fresh=fresh,
        is_confirmed=yes,
        url=url,
        api_key=api_key,
    )
    with terminal.problems_reported():
        ended = start.start(request_options, view(as_json=as_json))
        report.print_summary(ended, as_json=as_json)
    raise typer.Exit(ended.status)


def resume(
    batch_id: Annotated[str, typer.Argument(metavar="BATCH", help="Id of the batch.", autocompletion=complete_batches)],
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Run only the failed items again.")] = False,
    out: OutFolder = Path("out"),
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Resume a batch, follow it to its end and write its results. No item that has ended runs twice.

    [bold]Examples[/]

      hugginggpt resume batch_19a2b3c4d5e6f708192a3b4 --out spoken

      hugginggpt resume batch_19a2b3c4d5e6f708192a3b4 --failed --out spoken

    Exit status: as for hugginggpt batch.
    """
    from gateway.cli.batch import live_view, report

    with terminal.problems_reported():
        view = live_view.view(as_json=as_json)
        ended = _resume(batch_id, out, view, failed_only=failed, url=url, api_key=api_key)
        report.print_summary(ended, as_json=as_json)
    raise typer.Exit(ended.status)


def _resume(
    batch_id: str, out: Path, view: "View", *, failed_only: bool, url: str | None, api_key: str | None
) -> "FollowedBatch":
    """Resumes a batch, follows it to its end and saves all results. Ctrl-C cancels the batch."""
    from gateway.cli.batch import follow

    folder = _prepare_folder(batch_id, out)
    try:
        with gateway(url, view.busy, api_key) as client:
            view.busy("")
            client.resume_batch(batch_id, failed_only=failed_only)
            folder.claim(batch_id)
            return follow.finish(client, batch_id, folder, view)
    finally:
        view.close()


def batches(
    *,
    state: States = None,
    limit: Limit = 20,
    page: NextPage = "",
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List batches, newest first. The commands watch, cancel and delete accept their ids.

    [bold]Example[/]

      hugginggpt batches --state running
    """
    from gateway.cli.batch import report

    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            listed = client.batches(states=[each.value for each in state or ()], page_size=limit, page_token=page)
        if as_json:
            terminal.print_page("batches", listed)
        else:
            for batch in listed:
                terminal.out().print(report.line(batch), soft_wrap=True)
            terminal.print_next_page("hugginggpt batches", listed.next)


def is_batch(what: str) -> bool:
    """Whether an id is that of a batch."""
    return what.startswith(PREFIX)


def watch(batch_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Follows a batch and prints its summary; returns the exit status. Ctrl-C does not cancel the batch."""
    from gateway.cli.batch import follow, live_view, report

    view = live_view.view(as_json=as_json)
    try:
        with gateway(url, view.busy, api_key) as client:
            view.busy("")
            ended = follow.watch(client, batch_id, view)
    except KeyboardInterrupt:
        raise Problem("stopped watching; the batch continues", status=INTERRUPTED) from None
    finally:
        view.close()
    report.print_summary(ended, as_json=as_json)
    return ended.status


def get(batch_id: str, out: Path, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Saves the present results of a batch and prints its summary; returns the exit status."""
    from gateway.cli.batch import follow, live_view, report

    folder = _prepare_folder(batch_id, out)
    view = live_view.view(as_json=as_json)
    try:
        with gateway(url, view.busy, api_key) as client:
            client.batch(batch_id)  # raises before the folder is claimed if the batch does not exist
            folder.claim(batch_id)
            ended = follow.save(client, batch_id, folder)
    finally:
        view.close()
    report.print_summary(ended, as_json=as_json)
    return ended.status


def _prepare_folder(batch_id: str, out: Path) -> "Folder":
    from gateway.cli.batch.output import Folder

    folder = Folder(out)
    folder.prepare()
    folder.check_free(batch_id)
    return folder
