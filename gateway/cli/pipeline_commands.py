"""hugginggpt pipelines, show, export and import."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text
from rich.tree import Tree

from gateway.cli import document_file, pipeline_file, plan_graph, save_command, terminal
from gateway.cli.connect import DEFAULT_URL
from gateway.cli.live_view import one_line, printable
from gateway.cli.run_commands import asking
from gateway.client import HuggingGPT, Pipeline, Port
from gateway.client.pipelines.models import reference


def show_all(name: str, limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of pipelines, or of the versions of one."""
    with asking(url, api_key) as house:
        if name:
            listed = house.pipeline_versions(name, page_size=limit, page_token=page)
        else:
            listed = house.pipelines(page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.tell_json({"pipelines": [each.model_dump(mode="json") for each in listed], **more})
        return
    for each in listed:
        terminal.out().print(_line(each), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt pipelines {name} --page {listed.next}", soft_wrap=True)
    if not listed.items:
        terminal.err().print('none is kept yet: hugginggpt ask "…" --file FILE --save NAME')


def show(named: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a pipeline with its graph."""
    with asking(url, api_key) as house:
        pipeline = found(house, named)
    if as_json:
        terminal.tell_json(pipeline.model_dump(mode="json"))
        return
    for part in _parts(pipeline):
        terminal.out().print(part, soft_wrap=True)


def export(named: str, out: Path | None, url: str | None, api_key: str | None) -> None:
    """Writes the file of a pipeline, or prints it."""
    with asking(url, api_key) as house:
        pipeline = found(house, named)
    text = pipeline_file.written(pipeline, (url or DEFAULT_URL).rstrip("/"))
    if out:
        out.write_text(text, "utf-8")
    else:
        terminal.tell_text(text)


def import_(file: Path, name: str, url: str | None, api_key: str | None, *, pin: bool, as_json: bool) -> None:
    """Keeps what a file says."""
    if name:
        save_command.check_name(name)
    read = pipeline_file.imported(document_file.read(file), name)
    with asking(url, api_key) as house:
        kept = house.save_pipeline(
            read.name, read.plan, description=read.description, policy=read.policy, inputs=read.inputs, pin_models=pin
        )
    save_command.tell(kept, as_json=as_json)


def found(house: HuggingGPT, named: str) -> Pipeline:
    """The pipeline that NAME or NAME@VERSION means."""
    meant = reference(named)
    return house.pipeline(meant["name"], meant.get("version", 0))


def _line(pipeline: Pipeline) -> Text:
    kept = pipeline.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if pipeline.create_time else ""
    said = one_line(" ".join(pipeline.description.split()))[:80]
    takes = plan_graph.flow(pipeline.inputs, pipeline.outputs)
    named = f"{pipeline.name}@{pipeline.version}"
    return Text.assemble((f"{named:<24}", "bold"), f"  {kept}  {takes:<24}  ", (said, "dim"))


def _parts(pipeline: Pipeline) -> Iterator[Text | Tree]:
    kept = pipeline.create_time.astimezone().strftime(", kept %Y-%m-%d %H:%M") if pipeline.create_time else ""
    source = f" from {pipeline.source_run_id}" if pipeline.source_run_id else ""
    policy = f", policy {pipeline.policy}" if pipeline.policy else ""
    yield Text.assemble((pipeline.name, "bold"), f"  version {pipeline.version}{kept}{source}{policy}")
    if pipeline.description:
        yield Text(printable(pipeline.description.strip()), style="dim")
    yield Text("")
    yield from plan_graph.drawn(pipeline.inputs, pipeline.plan)
    yield Text("")
    yield from _ports("gives", pipeline.outputs)


def _ports(what: str, ports: Sequence[Port]) -> Iterator[Text]:
    for port in ports:
        optional = "" if port.required else ", not always"
        said = f"  {one_line(port.description)}" if port.description else ""
        yield Text.assemble(f"{what} ", (one_line(port.name), "bold"), f"  {port.modality}{optional}", (said, "dim"))
