"""Commands for pipelines: list, show, run, save, export and import."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from gateway.cli import terminal
from gateway.cli.connect import DEFAULT_URL, connected_gateway
from gateway.cli.errors import USAGE, Problem
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
from gateway.cli.terminal import one_line, printable

if TYPE_CHECKING:
    from gateway.client import HuggingGPT, Pipeline, Port

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")

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
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            if name:
                listed = client.pipeline_versions(name, page_size=limit, page_token=page)
            else:
                listed = client.pipelines(page_size=limit, page_token=page)
        if as_json:
            terminal.print_page("pipelines", listed)
        else:
            _print_list(listed.items)
            terminal.print_next_page(f"hugginggpt pipelines {name}".rstrip(), listed.next)


def _print_list(listed: "Sequence[Pipeline]") -> None:
    for each in listed:
        terminal.print_row(_line(each))
    if not listed:
        console = terminal.err()
        console.print(
            'there are no pipelines; save one with: hugginggpt ask "…" --file FILE --save NAME', soft_wrap=True
        )


def _line(pipeline: "Pipeline") -> Text:
    from gateway.cli import plan_graph

    saved = pipeline.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if pipeline.create_time else ""
    description = one_line(" ".join(pipeline.description.split()))[:80]
    ports = plan_graph.flow(pipeline.inputs, pipeline.outputs)
    named = f"{pipeline.name}@{pipeline.version}"
    return Text.assemble((f"{named:<24}", "bold"), f"  {saved}  {ports:<24}  ", (description, "dim"))


def show(pipeline: PipelineName, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show a pipeline: its graph, inputs, outputs, models and origin.

    [bold]Examples[/]

      hugginggpt show read-aloud

      hugginggpt show read-aloud@1 --json
    """
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            found = find(client, pipeline)
        if as_json:
            terminal.print_json(found.model_dump(mode="json"))
        else:
            for part in _parts(found):
                terminal.out().print(part, soft_wrap=True)


def find(client: "HuggingGPT", reference_text: str) -> "Pipeline":
    """Fetches a pipeline by NAME or NAME@VERSION."""
    from gateway.client.models import reference

    target = reference(reference_text)
    return client.pipeline(target["name"], target.get("version", 0))


def _parts(pipeline: "Pipeline") -> Iterator[Text | Tree]:
    from gateway.cli import plan_graph

    saved = pipeline.create_time.astimezone().strftime(", saved %Y-%m-%d %H:%M") if pipeline.create_time else ""
    source = f" from {pipeline.source_run_id}" if pipeline.source_run_id else ""
    policy = f", policy {pipeline.policy}" if pipeline.policy else ""
    yield Text.assemble((pipeline.name, "bold"), f"  version {pipeline.version}{saved}{source}{policy}")
    if pipeline.description:
        yield Text(printable(pipeline.description.strip()), style="dim")
    yield Text("")
    yield from plan_graph.render(pipeline.inputs, pipeline.plan)
    yield Text("")
    yield from _ports("output", pipeline.outputs)


def _ports(label: str, ports: "Sequence[Port]") -> Iterator[Text]:
    for port in ports:
        optional = "" if port.required else ", optional"
        description = f"  {one_line(port.description)}" if port.description else ""
        yield Text.assemble(
            f"{label} ", (one_line(port.name), "bold"), f"  {port.modality}{optional}", (description, "dim")
        )


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
    from gateway.cli import follow, live_view
    from gateway.cli.ask import AskRequest, start_and_follow

    request = AskRequest(
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
        followed = start_and_follow(request, live_view.view(as_json=as_json))
        follow.print_result(followed, as_json=as_json)
        if followed.save_problem:
            raise followed.save_problem
    raise typer.Exit(followed.status)


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
    with terminal.problems_reported():
        check_name(name)
        with connected_gateway(url, api_key) as client:
            saved = client.save_pipeline(name, run, description=description, pin_models=pin)
        _print_saved(saved, as_json=as_json)


def check_name(name: str) -> None:
    """Raises Problem if a name is not valid for a pipeline."""
    if not _NAME.fullmatch(name):
        remedy = "use at most 63 lower-case letters, digits, '.', '-' and '_', starting with a letter"
        raise Problem(f"{name!r} is not a valid pipeline name", remedy=remedy, status=USAGE)


def _print_saved(saved: "Pipeline", *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(saved.model_dump(mode="json"))
        return
    console = terminal.out()
    console.print(Text.assemble("saved as ", (saved.name, "bold"), f", version {saved.version}"), soft_wrap=True)
    for port in saved.inputs:
        console.print(Text(f"  input {one_line(port.name)}: {port.modality}", style="dim"), soft_wrap=True)


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
    from gateway.cli import pipeline_file

    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            found = find(client, pipeline)
        text = pipeline_file.serialize(found, (url or DEFAULT_URL).rstrip("/"))
        if out:
            out.write_text(text, "utf-8")
        else:
            terminal.print_text(text)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file written by export or ask --json; - is standard input.")
    ],
    *,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the pipeline. Unset: the name in the file.")
    ] = "",
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
    from gateway.cli import document_file, pipeline_file

    with terminal.problems_reported():
        if name:
            check_name(name)
        read = pipeline_file.parse(document_file.read(file), name)
        with connected_gateway(url, api_key) as client:
            saved = client.save_pipeline(
                read.name,
                read.plan,
                description=read.description,
                policy=read.policy,
                inputs=read.inputs,
                pin_models=pin,
            )
        _print_saved(saved, as_json=as_json)
