"""The command up: runs the local services in the foreground."""

import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.connect import DEFAULT_URL
from gateway.cli.errors import Problem
from gateway.cli.local_stack import LocalStack
from gateway.cli.terminal import printable

_STYLES = {"error": "red", "warning": "yellow", "info": "", "plain": "dim"}
_HIDDEN_FIELDS = ("event", "level", "timestamp", "logger", "exception")


def up(
    experts: Annotated[str, typer.Option(metavar="NAMES", help="Experts to run, separated by commas.")] = "lite",
    orchestrators: Annotated[int, typer.Option(min=1, help="Number of orchestrator processes.")] = 1,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="HTTP address to listen on. [127.0.0.1:8080]")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="gRPC address to listen on. [127.0.0.1:50051]")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole log.")] = False,
) -> None:
    """Start all services on this machine and run them until Ctrl-C.

    [bold]Examples[/]

      hugginggpt up

      hugginggpt up --orchestrators 2 --http 127.0.0.1:8090
    """
    options = ["--experts", experts, "--orchestrators", str(orchestrators)]
    for name, value in (("--http", http), ("--grpc", grpc)):
        options += [name, value] if value else []
    with terminal.problems_reported():
        status = _run_in_foreground(options, verbose=verbose)
    raise typer.Exit(status)


def _run_in_foreground(options: Sequence[str], *, verbose: bool) -> int:
    """Runs the local services until they end or a signal arrives; returns the exit status."""
    console = Console(stderr=True, highlight=False)
    is_ready = stopping = False
    errors: dict[str, Text] = {}
    """Errors logged before the services are ready, each once: printed afterwards, or reported as the reason of a failed
    start."""

    def on_line(entry: Mapping[str, Any]) -> None:
        is_problem = entry.get("level") in ("error", "warning")
        line = log_line(entry)
        if verbose or (is_problem and is_ready and line.plain not in errors):
            console.print(line, soft_wrap=True)
        elif entry.get("level") == "error":
            errors[line.plain] = line

    with LocalStack(options, on_line) as stack:

        def on_signal(*_: object) -> None:
            nonlocal stopping
            console.print(
                "Stopping immediately…" if stopping else "Stopping… Ctrl-C again stops immediately.", style="dim"
            )
            stopping = True
            stack.signal()

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        try:
            with console.status("Starting local services…"):
                ready = stack.ready()
        except Problem:
            if stopping:
                return stack.wait()
            raise
        is_ready = True
        _welcome(console, ready)
        for line in list(errors.values()):
            console.print(line, soft_wrap=True)
        return stack.wait()


def log_line(entry: Mapping[str, Any]) -> Text:
    """Renders a log entry."""
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _HIDDEN_FIELDS and value != "")
    trace = f"\n{entry['exception']}" if "exception" in entry else ""
    style = _STYLES.get(str(entry.get("level")), "")
    return Text.assemble((printable(str(entry.get("event", ""))), style), (f"  {printable(facts + trace)}", "dim"))


def _welcome(console: Console, ready: Mapping[str, Any]) -> None:
    option = "" if ready["url"] == DEFAULT_URL else f" --url {ready['url']}"
    console.print(Text("HuggingGPT is ready", style="bold green"))
    for name, value in (
        ("HTTP", f"{ready['url']}   API documentation: {ready['url']}/docs"),
        ("gRPC", ready["grpc"]),
        ("try", f'hugginggpt ask "Read the text in this image aloud" --file sign.png{option}'),
        ("", f"hugginggpt tasks{option}"),
        ("stop", "Ctrl-C"),
    ):
        console.print(Text.assemble((f"  {name:<6}", "dim"), value), soft_wrap=True)
