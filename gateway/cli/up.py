"""The command up: runs the local services in the foreground."""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Annotated, Any, Self

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
    experts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Experts to run, separated by commas. [lite; with LLM_BASE_URL also llm]",
        ),
    ] = None,
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
    options = ["--orchestrators", str(orchestrators)]
    for name, value in (("--experts", experts), ("--http", http), ("--grpc", grpc)):
        options += [name, value] if value is not None else []
    with terminal.problems_reported():
        status = _run_in_foreground(options, verbose=verbose)
    raise typer.Exit(status)


def _run_in_foreground(options: Sequence[str], *, verbose: bool) -> int:
    """Runs the local services until they end or a signal arrives; returns the exit status."""
    console = Console(stderr=True, highlight=False)
    printer = LogPrinter(console, verbose=verbose)
    with LocalStack(options, printer.add) as stack, SignalHandler(console, stack.signal) as signals:
        try:
            with console.status("Starting local services…"):
                ready = stack.ready()
        except Problem:
            if signals.is_stopping:
                return stack.wait()
            raise
        _welcome(console, ready)
        printer.start()
        return stack.wait()


class SignalHandler:
    """Stops the services on SIGINT and SIGTERM, and prints a message.

    A thread prints the messages: a signal can interrupt the main thread in a print, and a print by the handler would
    then repeat the interrupted line.

    Args:
        console: where to print.
        stop: stops the services; called for each signal.
    """

    def __init__(self, console: Console, stop: Callable[[], None]) -> None:
        self.is_stopping = False
        """Whether a signal has arrived."""
        self._console = console
        self._stop = stop
        self._messages: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._print_messages, name="signal-messages", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.put("")
        self._thread.join()

    def _handle(self, *_: object) -> None:
        again = self.is_stopping
        self.is_stopping = True
        self._messages.put("Stopping immediately…" if again else "Stopping… Ctrl-C again stops immediately.")
        self._stop()

    def _print_messages(self) -> None:
        while message := self._messages.get():
            self._console.print(message, style="dim")


class LogPrinter:
    """Prints warnings and errors of the services, each once while it repeats.

    Errors logged before start() are printed by it; until then they may be reported as the reason of a failed start.

    Args:
        console: where to print.
        verbose: print every line at once.
    """

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        self._is_started = False
        self._errors: dict[str, Text] = {}
        self._last = ""
        self._lock = threading.Lock()
        """Held while lines are added or printed: entries come from another thread than the start."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """Takes a log entry."""
        line, level = log_line(entry), entry.get("level")
        with self._lock:
            if self._verbose:
                self._console.print(line, soft_wrap=True)
            elif self._is_started and level in ("error", "warning"):
                self._print(line)
            elif level == "error":
                self._errors[line.plain] = line

    def start(self) -> None:
        """Prints the errors so far; from now on, problems are printed when they are logged."""
        with self._lock:
            self._is_started = True
            for line in self._errors.values():
                self._console.print(line, soft_wrap=True)

    def _print(self, line: Text) -> None:
        if line.plain not in (self._last, *self._errors):
            self._console.print(line, soft_wrap=True)
        self._last = line.plain


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
