"""Commands for pipelines. Their implementation is imported only when they run, so that --help is fast."""

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

NewName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]


def pipelines(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="List the versions of this pipeline instead.")] = "",
    *,
    limit: Limit = 50,
    page: NextPage = "",
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List saved pipelines with their inputs and outputs.

    [bold]Examples[/]

      hugginggpt pipelines

      hugginggpt pipelines read-aloud
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_reported():
        pipeline_commands.show_all(name, limit, page, url, api_key, as_json=as_json)


def show(pipeline: PipelineName, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show a pipeline: its graph, inputs, outputs, models and origin.

    [bold]Examples[/]

      hugginggpt show read-aloud

      hugginggpt show read-aloud@1 --json
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_reported():
        pipeline_commands.show(pipeline, url, api_key, as_json=as_json)


def run(
    pipeline: PipelineName,
    *,
    file: Files = None,
    settings: Settings = None,
    out: Out = Path("out"),
    policy: Annotated[
        Policy | None,
        typer.Option(help="local: no data leaves the deployment. Unset: the pipeline's or the gateway's default."),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="As in hugginggpt ask.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of the run.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where the result of an earlier run could be reused.")
    ] = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline, without planning and without an LLM. Files fill its parameters in order.

    [bold]Examples[/]

      hugginggpt run read-aloud --file sign.png

      hugginggpt run translate --file letter.pdf --set target=de

    Exit status: as for hugginggpt ask.
    """
    from gateway.cli import ask_command, terminal

    ask_request = ask_command.AskRequest(
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
    with terminal.problems_reported():
        answered = ask_command.ask(ask_request, terminal.view(as_json=as_json))
        terminal.print_result(answered, as_json=as_json)
        if answered.save_problem:
            raise answered.save_problem
    raise typer.Exit(answered.status)


def save(
    run: RunId,
    name: NewName,
    *,
    description: Annotated[str, typer.Option(metavar="TEXT", help="Description of the pipeline.")] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Save the plan of a finished run as the next version of a pipeline. The run's inputs become parameters.

    [bold]Example[/]

      hugginggpt save run_19a2b3c4d5e6f708192a3b4 read-aloud --pin
    """
    from gateway.cli import save_command, terminal

    with terminal.problems_reported():
        save_command.save(run, name, description, url, api_key, pin=pin, as_json=as_json)


def export(
    pipeline: PipelineName,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file. Unset: standard output.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Write a pipeline to a YAML file, for editing or for hugginggpt import in another deployment.

    [bold]Example[/]

      hugginggpt export read-aloud --out read-aloud.yaml
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_reported():
        pipeline_commands.export(pipeline, out, url, api_key)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file written by export or ask --json; - is standard input.")
    ],
    *,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the pipeline. Unset: the name in the file.")] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Save a file as the next version of a pipeline, after the services have checked that they can run it.

    [bold]Examples[/]

      hugginggpt import read-aloud.yaml

      hugginggpt ask "Read this aloud" --file sign.png --json > run.json

      hugginggpt import run.json --name read-aloud
    """
    from gateway.cli import pipeline_commands, terminal

    with terminal.problems_reported():
        pipeline_commands.import_(file, name, url, api_key, pin=pin, as_json=as_json)
