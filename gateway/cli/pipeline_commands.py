"""Implementation of hugginggpt pipelines, show, export and import."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text
from rich.tree import Tree

from gateway.cli import document_file, pipeline_file, plan_graph, save_command, terminal
from gateway.cli.connect import DEFAULT_URL
from gateway.cli.live_view import one_line, printable
from gateway.cli.run_commands import connected_gateway
from gateway.client import HuggingGPT, Pipeline, Port
from gateway.client.models import reference


def show_all(name: str, limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of pipelines, or of the versions of one pipeline."""
    with connected_gateway(url, api_key) as client:
        if name:
            listed = client.pipeline_versions(name, page_size=limit, page_token=page)
        else:
            listed = client.pipelines(page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.print_json({"pipelines": [each.model_dump(mode="json") for each in listed], **more})
        return
    for each in listed:
        terminal.out().print(_line(each), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt pipelines {name} --page {listed.next}", soft_wrap=True)
    if not listed.items:
        terminal.err().print('there are no pipelines; save one with: hugginggpt ask "…" --file FILE --save NAME')


def show(reference_text: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a pipeline with its graph."""
    with connected_gateway(url, api_key) as client:
        pipeline = find(client, reference_text)
    if as_json:
        terminal.print_json(pipeline.model_dump(mode="json"))
        return
    for part in _parts(pipeline):
        terminal.out().print(part, soft_wrap=True)


def export(reference_text: str, out: Path | None, url: str | None, api_key: str | None) -> None:
    """Writes a pipeline to a file, or prints it."""
    with connected_gateway(url, api_key) as client:
        pipeline = find(client, reference_text)
    text = pipeline_file.serialize(pipeline, (url or DEFAULT_URL).rstrip("/"))
    if out:
        out.write_text(text, "utf-8")
    else:
        terminal.print_text(text)


def import_(file: Path, name: str, url: str | None, api_key: str | None, *, pin: bool, as_json: bool) -> None:
    """Saves the pipeline of a file."""
    if name:
        save_command.check_name(name)
    read = pipeline_file.parse(document_file.read(file), name)
    with connected_gateway(url, api_key) as client:
        saved = client.save_pipeline(
            read.name, read.plan, description=read.description, policy=read.policy, inputs=read.inputs, pin_models=pin
        )
    save_command.print_saved(saved, as_json=as_json)


def find(client: HuggingGPT, reference_text: str) -> Pipeline:
    """Fetches a pipeline by NAME or NAME@VERSION."""
    target = reference(reference_text)
    return client.pipeline(target["name"], target.get("version", 0))


def _line(pipeline: Pipeline) -> Text:
    saved = pipeline.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if pipeline.create_time else ""
    description = one_line(" ".join(pipeline.description.split()))[:80]
    ports = plan_graph.flow(pipeline.inputs, pipeline.outputs)
    named = f"{pipeline.name}@{pipeline.version}"
    return Text.assemble((f"{named:<24}", "bold"), f"  {saved}  {ports:<24}  ", (description, "dim"))


def _parts(pipeline: Pipeline) -> Iterator[Text | Tree]:
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


def _ports(label: str, ports: Sequence[Port]) -> Iterator[Text]:
    for port in ports:
        optional = "" if port.required else ", optional"
        description = f"  {one_line(port.description)}" if port.description else ""
        yield Text.assemble(
            f"{label} ", (one_line(port.name), "bold"), f"  {port.modality}{optional}", (description, "dim")
        )
