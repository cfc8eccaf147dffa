"""Commands for batches. Their implementation is imported only when they run, so that --help is fast."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Limit, Mode, NextPage, PlanFile, Policy, Settings, States, Url
from gateway.cli.shell_completion import batches as batch_ids

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
            metavar="FOLDER", help="A folder whose files, also in subfolders, are the items. Hidden files are left out."
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
    from gateway.cli import terminal
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
    batch_id: Annotated[str, typer.Argument(metavar="BATCH", help="Id of the batch.", autocompletion=batch_ids)],
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
    from gateway.cli import terminal
    from gateway.cli.batch import report, resume_command
    from gateway.cli.batch.live_view import view

    with terminal.problems_reported():
        batch_view = view(as_json=as_json)
        ended = resume_command.resume(batch_id, out, batch_view, failed_only=failed, url=url, api_key=api_key)
        report.print_summary(ended, as_json=as_json)
    raise typer.Exit(ended.status)


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
    from gateway.cli import terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_reported():
        resume_command.show([each.value for each in state or ()], limit, page, url, api_key, as_json=as_json)
