"""The commands about pipelines. What they do is imported when they run: help has to be quick."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import (
    ApiKey,
    Files,
    Json,
    Limit,
    Mode,
    NextPage,
    Out,
    Pin,
    PipelineName,
    Policy,
    RunId,
    Settings,
    Url,
)

NewName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]


def pipelines(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="List the versions of this one instead.")] = "",
    *,
    limit: Limit = 50,
    page: NextPage = "",
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List the plans kept under names: what each takes and gives.

    [bold]Examples[/]

      hugginggpt pipelines

      hugginggpt pipelines read-aloud
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_told():
        pipeline_commands.show_all(name, limit, page, url, api_key, as_json=as_json)


def show(pipeline: PipelineName, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show a pipeline: its graph, what it takes and gives, its models, and where it came from.

    [bold]Examples[/]

      hugginggpt show read-aloud

      hugginggpt show read-aloud@1 --json
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_told():
        pipeline_commands.show(pipeline, url, api_key, as_json=as_json)


def run(
    pipeline: PipelineName,
    *,
    file: Files = None,
    settings: Settings = None,
    out: Out = Path("out"),
    policy: Annotated[
        Policy | None, typer.Option(help="local: no byte leaves the house. Unset: as pipeline and gateway are set up.")
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="As hugginggpt ask has it.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="When the run must have ended.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where an earlier run gave its result already.")
    ] = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline: nothing is planned, and no LLM chooses models. Files are its parameters, in their order.

    [bold]Examples[/]

      hugginggpt run read-aloud --file sign.png

      hugginggpt run translate --file letter.pdf --set target=de

    Exit status: as of hugginggpt ask.
    """
    from gateway.cli import ask_command, terminal

    question = ask_command.Question(
        "",
        file or [],
        out,
        url=url,
        api_key=api_key,
        policy=policy and policy.value,
        mode=mode and mode.value,
        timeout=timeout,
        fresh=fresh,
        pipeline=pipeline,
        settings=settings or [],
    )
    with terminal.problems_told():
        answered = ask_command.ask(question, terminal.view(as_json=as_json))
        terminal.tell(answered, as_json=as_json)
        if answered.unsaved:
            raise answered.unsaved
    raise typer.Exit(answered.status)


def save(
    run: RunId,
    name: NewName,
    *,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Keep the plan of a run that has ended, as the next version of a pipeline; its inputs become parameters.

    [bold]Example[/]

      hugginggpt save run_19a2b3c4d5e6f708192a3b4 read-aloud --pin
    """
    from gateway.cli import save_command, terminal

    with terminal.problems_told():
        save_command.save(run, name, description, url, api_key, pin=pin, as_json=as_json)


def export(
    pipeline: PipelineName,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where it goes. Unset: to standard output.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Write a pipeline as a file to read, to edit, and to keep elsewhere with hugginggpt import.

    [bold]Example[/]

      hugginggpt export read-aloud --out read-aloud.yaml
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_told():
        pipeline_commands.export(pipeline, out, url, api_key)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What export wrote, or ask --json; - is standard input.")
    ],
    *,
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call it. Unset: as the file says.")] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Keep what a file says, as the next version of a pipeline, once the house has seen that it can do it.

    [bold]Examples[/]

      hugginggpt import read-aloud.yaml

      hugginggpt ask "Read this aloud" --file sign.png --json > run.json

      hugginggpt import run.json --name read-aloud
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_told():
        pipeline_commands.import_(file, name, url, api_key, pin=pin, as_json=as_json)
