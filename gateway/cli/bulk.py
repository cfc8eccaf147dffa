"""The command bulk: writes a job file, and runs the job as a process that needs no service."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli import terminal
from gateway.cli.connect import connected_gateway
from gateway.cli.errors import USAGE, Problem
from gateway.cli.options import ApiKey, Json, Media, Policy, Url, complete_pipelines

_ROOT = Path(__file__).parents[2]


def bulk(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="A pipeline file, or the name of a stored one; NAME@2 is its second version.",
            autocompletion=complete_pipelines,
        ),
    ],
    *,
    sources: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="A folder, pattern, file or object URL (s3://…), or a table (.parquet, .csv, .jsonl) with a column "
            "for each input. Repeatable.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="Folder or object URL ending in / for Parquet files, or a .jsonl or .csv file.",
        ),
    ] = "",
    experts: Annotated[
        str, typer.Option(metavar="NAMES", help="Experts, or folders of your own ones, separated by commas.")
    ] = "lite",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An input that is the same for all. Repeatable."),
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no data leaves this deployment. Unset: the pipeline's.")
    ] = None,
    runner: Annotated[
        str, typer.Option(metavar="RUNNER", help="native: this machine; ray://HOST:PORT: a Ray cluster.")
    ] = "native",
    media: Annotated[
        Media,
        typer.Option(help="Pictures, sounds and documents of the results: files next to the table, or columns of it."),
    ] = Media.FILES,
    workers: Annotated[
        int, typer.Option(min=0, metavar="COUNT", help="Worker processes. 0: one for each GPU, or for each core.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, metavar="COUNT", help="Most inputs; 0: all.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run 20 inputs, write nothing, and forecast time and cost of all.")
    ] = False,
    gpu_hour_price: Annotated[
        float, typer.Option(min=0, metavar="PRICE", help="Price of an hour of one GPU, for the forecast.")
    ] = 0.0,
    stop_after_errors: Annotated[
        str,
        typer.Option(metavar="COUNT", help="Stop after so many failed inputs, such as 100, or a share, such as 5%."),
    ] = "",
    job_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the job to a file and run nothing: for Kubernetes or another machine."
        ),
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline over many files without the services: thousands to billions, on this machine or on a Ray cluster.

    Each input becomes a row of the results, with outputs, models, digest and, if it failed, the error. The same command
    run again does only what is missing, failed or changed. Models and experts are those of this machine; only a stored
    pipeline is requested from the gateway.

    [bold]Examples[/]

      hugginggpt bulk read-aloud --from signs --to spoken/

      hugginggpt bulk read-aloud.yaml --from 's3://bucket/in/**/*.png' --to s3://bucket/out/ --dry-run

      hugginggpt bulk answer.yaml --from questions.csv --to answers.jsonl --experts lite,text,../colours

    Exit status: 0 every input has a result; 1 any other end; 2 invalid arguments; 130 ended with Ctrl-C.
    """
    with terminal.problems_reported():
        if job_file is None:
            _check_installed()
        job = {
            "pipeline": _read_pipeline(pipeline, url, api_key),
            "sources": sources,
            "to": to,
            "experts": [name.strip() for name in experts.split(",") if name.strip()],
            "values": dict(_parse_setting(each) for each in settings or ()),
            "policy": policy.value if policy else "",
            "runner": runner,
            "media": media.value,
            "workers": workers,
            "limit": limit,
            "dry_run": dry_run,
            "gpu_hour_price": gpu_hour_price,
            "stop_after_errors": stop_after_errors,
            "as_json": as_json,
        }
        status = _run(job) if job_file is None else _write(job_file, job)
    raise typer.Exit(status)


def _check_installed() -> None:
    """Raises Problem if the engine of bulk jobs is not installed."""
    if importlib.util.find_spec("daft") is None:
        target = f"--editable '{_ROOT}[bulk]'" if (_ROOT / "pyproject.toml").is_file() else "'hugginggpt[bulk]'"
        raise Problem(
            "bulk jobs need the Python package daft, which is not installed",
            remedy=f"{sys.executable} -m pip install {target}",
        )


def _read_pipeline(name: str, url: str | None, api_key: str | None) -> Mapping[str, Any]:
    """Returns the content of a pipeline file, or of a stored pipeline as such a file would have it."""
    from gateway.cli import document_file, pipeline_file
    from protos.hugginggpt.pipeline_file import FAMILY, NEWEST

    file = Path(name)
    if file.suffix in {".yaml", ".yml", ".json"}:
        document = document_file.read(file)
    else:
        from gateway.cli import pipelines

        with connected_gateway(url, api_key) as client:
            stored = pipelines.find(client, name)
        document = document_file.parse(pipeline_file.serialize(stored, ""), name)
    content = document.content
    if isinstance(content, dict) and "format" in content:
        pipeline_file.parse(document, "")  # its errors name the line
        return content
    return {"format": f"{FAMILY}{NEWEST}", "name": file.stem, "plan": document_file.plan(document)}


def _parse_setting(setting: str) -> tuple[str, str]:
    name, separator, value = setting.partition("=")
    if not name or not separator:
        raise Problem(f"{setting!r} is not NAME=VALUE", remedy="name an input of the pipeline", status=USAGE)
    return name, value


def _write(file: Path, job: Mapping[str, Any]) -> int:
    """Writes a job file and returns the exit status of success."""
    try:
        file.write_text(json.dumps(job, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}", remedy="name a file in an existing folder") from error
    return 0


def _run(job: Mapping[str, Any]) -> int:
    """Runs a job in a process of its own and returns its exit status; Ctrl-C ends the job, which writes what it has."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="hugginggpt-bulk-") as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job), "utf-8")
        command: Sequence[str] = [sys.executable, "-P", "-m", "experts.bulk", str(file)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as process:  # noqa: S603  # our own module
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    continue  # the terminal has sent it to the job, too
