"""The commands about batches. What they do is imported when they run: help has to be quick."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Limit, Mode, NextPage, PlanFile, Policy, Settings, States, Url
from gateway.cli.shell_completion import batches as batch_ids

OutFolder = Annotated[
    Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where results go; one folder for each batch.")
]


def batch(
    pipeline: Annotated[
        str, typer.Argument(metavar="NAME", help="The pipeline to run; NAME@2 is its second version.")
    ] = "",
    *,
    request: Annotated[
        str, typer.Option("--request", "-r", metavar="WORDS", help="Plan this once, on the first item, instead.")
    ] = "",
    plan: PlanFile = None,
    files: Annotated[
        list[str] | None, typer.Option("--files", "-f", metavar="PATTERN", help="Each file an item; repeat it.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Each file in and below it an item, but hidden ones.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv whose columns are parameters, or a .jsonl; each line an item."),
    ] = None,
    settings: Settings = None,
    out: OutFolder = Path("out"),
    max_at_once: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Items under way at once. Unset: as many as it takes.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no byte leaves the house. Unset: as pipeline and gateway are set up.")
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="As hugginggpt ask has it.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where an earlier run gave its result already.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run the plan of --request without being asked.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run one plan over many inputs, each a run of its own; a broken file costs one line of the results.

    Results are in --out, in the order of the input: results.jsonl, results.csv, summary.json, and in files/ what was
    made, as 0007-sign.audio.wav for the seventh item, sign.png. In --items, a column whose parameter takes a file has
    paths that begin where the table lies, URLs, or ids of kept files; a column name has what to call the item. What
    --set gives is the same for all items. In results.csv what begins like a formula has an apostrophe before it;
    results.jsonl has it plain.

    [bold]Examples[/]

      hugginggpt batch read-aloud --files 'signs/*.png' --out spoken

      hugginggpt batch answer --items questions.csv --out answers

      hugginggpt batch --request "Summarise this" --folder letters --out summaries

      hugginggpt batch --plan run.json --folder photos --set language=en --out named

    Exit status: 0 every item completed; 1 any other end; 2 asked wrongly; 130 cancelled with Ctrl-C. The batch goes on
    when this command is killed: hugginggpt resume has it end and its results written.
    """
    from gateway.cli import terminal
    from gateway.cli.batch import report, start
    from gateway.cli.batch.live_view import view

    wanted = start.Wanted(
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
        agreed=yes,
        url=url,
        api_key=api_key,
    )
    with terminal.problems_told():
        ended = start.start(wanted, view(as_json=as_json))
        report.tell(ended, as_json=as_json)
    raise typer.Exit(ended.status)


def resume(
    batch_id: Annotated[str, typer.Argument(metavar="BATCH", help="Its id.", autocompletion=batch_ids)],
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Only the items that have failed, again.")] = False,
    out: OutFolder = Path("out"),
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Go on with a batch, follow it to its end and write its results. No item that has ended runs twice.

    [bold]Examples[/]

      hugginggpt resume batch_19a2b3c4d5e6f708192a3b4 --out spoken

      hugginggpt resume batch_19a2b3c4d5e6f708192a3b4 --failed --out spoken

    Exit status: as of hugginggpt batch.
    """
    from gateway.cli import terminal
    from gateway.cli.batch import report, resume_command
    from gateway.cli.batch.live_view import view

    with terminal.problems_told():
        seen = view(as_json=as_json)
        ended = resume_command.resume(batch_id, out, seen, failed_only=failed, url=url, api_key=api_key)
        report.tell(ended, as_json=as_json)
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
    """List batches, newest first. watch, cancel and delete take their ids.

    [bold]Example[/]

      hugginggpt batches --state running
    """
    from gateway.cli import terminal
    from gateway.cli.batch import resume_command

    with terminal.problems_told():
        resume_command.show([each.value for each in state or ()], limit, page, url, api_key, as_json=as_json)
