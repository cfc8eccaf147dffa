"""hugginggpt doctor: what could be wrong, one check each, with what helps."""

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

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli import routing, terminal
from gateway.cli.connect import DEFAULT_URL
from gateway.cli.doctor_finding import Finding, Level
from gateway.cli.live_view import printable
from gateway.cli.llm_endpoints import endpoints
from gateway.client import HuggingGPT, HuggingGPTError, Refused, Unreachable
from services.common.errors import InvalidRequest
from services.common.settings import StoreSettings, from_environment, home

GRPC_PORT = 50051
OLDEST_PYTHON = (3, 11)
LEAST_BYTES = 1_000_000_000
"""Below it, artifacts and models soon find no room."""

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
"""The lite expert's packages, and what is missing without them; where it is not installed, it runs elsewhere."""


def examine(url: str | None, api_key: str | None, *, as_json: bool) -> bool:
    """Prints what every check found; says whether nothing is wrong."""
    with terminal.err().status("looking"):
        findings = [*machine(), *endpoints(), *house(url, api_key)]
    well = all(finding.level is not Level.WRONG for finding in findings)
    if as_json:
        terminal.tell_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        Console(highlight=False).print(_table(findings))
    return well


def machine() -> Iterator[Finding]:
    """What holds on this machine whether or not a house runs."""
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info[:2] < OLDEST_PYTHON
    yield Finding("python", Level.WRONG if old else Level.OK, version, "install Python 3.11 or later" if old else "")
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


def house(url: str | None, api_key: str | None) -> Iterator[Finding]:
    """What holds of the house that runs, or of the ports where one would."""
    try:
        with HuggingGPT(url or DEFAULT_URL, api_key) as there:
            there.greet()
            yield Finding("gateway", Level.OK, f"answers at {there.url}")
            yield from _standing(there)
    except Unreachable as problem:
        if url:
            yield Finding("gateway", Level.WRONG, problem.message, problem.remedy)
        else:
            yield Finding("gateway", Level.OK, "none runs; ask starts a house for each request", "hugginggpt up")
            yield _port("gRPC port", GRPC_PORT)
    except HuggingGPTError as problem:
        yield Finding("gateway", Level.WRONG, problem.message, problem.remedy)


def _standing(house: HuggingGPT) -> Iterator[Finding]:
    try:
        house.fetch("/readyz")
        yield Finding("readiness", Level.OK, "takes requests")
    except Refused as error:
        yield Finding("readiness", Level.WRONG, f"takes no requests: {error.message}", error.remedy)
    experts: list[Any] = house.fetch("/v1/experts")["data"]
    if not experts:
        yield Finding("experts", Level.WRONG, "none: nothing can be done", "hugginggpt experts add HOST:PORT")
    for expert in experts:
        problems, tasks = expert.get("problems", ()), len(expert.get("tasks", ()))
        state = "asleep" if expert.get("dormant") else f"{tasks} tasks"
        level = Level.WRONG if problems else Level.OK
        remedy = "look at its log, or hugginggpt experts forget NAME" if problems else ""
        yield Finding(f"expert {expert.get('name', '')}", level, "; ".join((state, *problems)), remedy)
    for problem in routing.problems(house.fetch("/v1/models?page_size=1").get("routes", ())):
        yield Finding("routing table", Level.WARNING, problem, "start the expert, or correct SELECTOR_ROUTES")


def _engine(package: str, use: str) -> Finding:
    try:
        return Finding(package, Level.OK, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Finding(package, Level.WARNING, f"not installed: no {use}", "pip install 'hugginggpt[laptop]'")


def _folder(check: str, folder: Path, setting: str) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding(check, Level.OK, str(folder))
    except OSError as error:
        return Finding(check, Level.WRONG, f"cannot write to {folder}: {error.strerror}", f"set {setting} to another")


def _disk(folder: Path) -> Finding:
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    short = free < LEAST_BYTES
    return Finding(
        "disk", Level.WARNING if short else Level.OK, f"{free / 1e9:.1f} GB free", "make room" if short else ""
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


def _table(findings: list[Finding]) -> Table:
    styles = {Level.OK: "green", Level.WARNING: "yellow", Level.WRONG: "red"}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "check", "found", "what helps"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = Text(finding.level.value, style=styles[finding.level])
        table.add_row(mark, *(Text(printable(cell)) for cell in (finding.check, finding.found, finding.remedy)))
    return table
