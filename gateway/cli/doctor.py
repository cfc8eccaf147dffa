"""hugginggpt doctor: checks the installation and the services, with a remedy for each failure."""

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gateway.cli import terminal
from gateway.cli.catalog import expert_problems, routing_problems
from gateway.cli.cluster import cluster
from gateway.cli.connect import DEFAULT_URL
from gateway.cli.llm_probe import endpoints
from gateway.client import HuggingGPT, HuggingGPTError, Refused, Unreachable
from gateway.conformance.findings import Finding, Level
from services.common.errors import InvalidRequest
from services.common.settings import StoreSettings, from_environment, home

GRPC_PORT = 50051
OLDEST_PYTHON = (3, 11)
MIN_FREE_BYTES = 1_000_000_000
"""Free disk space below which artifacts and models may not fit."""

ENGINES = {
    "rapidocr": "reading text in pictures",
    "onnxruntime": "reading text in pictures",
    "opencv-python-headless": "faces, people and picture editing",
    "pillow": "pictures",
    "pi-heif": "HEIC pictures",
    "pypdfium2": "PDF",
    "vaderSentiment": "sentiment",
    "py3langid": "language detection",
    "soundfile": "recordings and noise reduction",
    "pocketsphinx": "speech recognition",
    "espeakng-loader": "speech",
}
"""Packages of the lite expert, each with what it is needed for."""


def diagnose(url: str | None, api_key: str | None, *, as_json: bool, namespace: str | None = None) -> bool:
    """Runs and prints all checks; returns whether none failed.

    Args:
        url: of the gateway; None: the local one.
        api_key: for the gateway.
        as_json: print JSON.
        namespace: check the deployment in this namespace of a cluster, in place of this machine and its services.
    """
    with terminal.err().status("checking"):
        findings = [*cluster(namespace)] if namespace else [*machine(), *endpoints(), *services(url, api_key)]
    is_ok = all(finding.level is not Level.WRONG for finding in findings)
    if as_json:
        terminal.print_json({"ok": is_ok, "checks": [asdict(finding) for finding in findings]})
    else:
        terminal.print_findings(findings, "remedy")
    return is_ok


def machine() -> Iterator[Finding]:
    """Checks of this machine, which need no running services."""
    version = ".".join(map(str, sys.version_info[:3]))
    is_old = sys.version_info[:2] < OLDEST_PYTHON
    yield Finding(
        "python", Level.WRONG if is_old else Level.OK, version, "install Python 3.11 or later" if is_old else ""
    )
    if find_spec("experts") and find_spec("experts.lite"):
        yield from (_engine(package, use) for package, use in ENGINES.items())
    yield _folder("home", home(), "HUGGINGGPT_HOME")
    yield from _store()
    yield _disk(home())


def _store() -> Iterator[Finding]:
    try:
        url = from_environment(StoreSettings).artifacts_url
    except InvalidRequest as wrong:
        yield Finding("artifacts", Level.WRONG, wrong.message, wrong.remedy)
        return
    if url.startswith("file://"):
        yield _folder("artifacts", Path(unquote(urlsplit(url).path)), "ARTIFACTS_URL")


def services(url: str | None, api_key: str | None) -> Iterator[Finding]:
    """Checks of the running services, or of the ports that they would use."""
    try:
        with HuggingGPT(url or DEFAULT_URL, api_key) as client:
            client.greet()
            yield Finding("gateway", Level.OK, f"answers at {client.url}")
            yield from _service_checks(client)
    except Unreachable as problem:
        if url:
            yield Finding("gateway", Level.WRONG, problem.message, problem.remedy)
        else:
            yield Finding(
                "gateway", Level.OK, "not running; ask starts local services for each request", "hugginggpt up"
            )
            yield _port("gRPC port", GRPC_PORT)
    except HuggingGPTError as problem:
        yield Finding("gateway", Level.WRONG, problem.message, problem.remedy)


def _service_checks(client: HuggingGPT) -> Iterator[Finding]:
    try:
        client.fetch("/readyz")
        yield Finding("readiness", Level.OK, "accepts requests")
    except Refused as error:
        yield Finding("readiness", Level.WRONG, f"accepts no requests: {error.message}", error.remedy)
    experts: list[Any] = client.fetch("/v1/experts")["data"]
    if not experts:
        yield Finding(
            "experts", Level.WRONG, "there is no expert, so no task can run", "hugginggpt experts add HOST:PORT"
        )
    for expert in experts:
        problems, tasks = list(expert_problems(expert)), len(expert.get("tasks", ()))
        state = "dormant" if expert.get("dormant") else f"{tasks} tasks"
        level = Level.WRONG if problems else Level.OK
        remedy = (
            f"read its log, or remove it with hugginggpt experts forget {expert.get('name', '')}" if problems else ""
        )
        yield Finding(f"expert {expert.get('name', '')}", level, "; ".join((state, *problems)), remedy)
    for problem in routing_problems(client.fetch("/v1/models?page_size=1").get("routes", ())):
        yield Finding("routing table", Level.WARNING, problem, "start the expert, or correct SELECTOR_ROUTES")


def _engine(package: str, use: str) -> Finding:
    try:
        return Finding(package, Level.OK, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Finding(package, Level.WARNING, f"not installed; needed for {use}", "pip install 'hugginggpt[laptop]'")


def _folder(check: str, folder: Path, setting: str) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding(check, Level.OK, str(folder))
    except OSError as error:
        return Finding(
            check, Level.WRONG, f"cannot write to {folder}: {error.strerror}", f"set {setting} to a writable folder"
        )


def _disk(folder: Path) -> Finding:
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    is_short = free < MIN_FREE_BYTES
    return Finding(
        "disk",
        Level.WARNING if is_short else Level.OK,
        f"{free / 1e9:.1f} GB free",
        "free disk space" if is_short else "",
    )


def _port(check: str, port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = f"hugginggpt up --grpc 127.0.0.1:{port + 1}"
            return Finding(check, Level.WARNING, f"127.0.0.1:{port}: {error.strerror}", remedy)
    return Finding(check, Level.OK, f"127.0.0.1:{port} is free")
