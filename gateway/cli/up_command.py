"""hugginggpt up: the house in the foreground."""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from gateway.cli.connect import DEFAULT_URL
from gateway.cli.errors import Problem
from gateway.cli.live_view import printable
from gateway.cli.local_stack import House

_STYLES = {"error": "red", "warning": "yellow", "info": "", "plain": "dim"}
_NOT_TOLD = ("event", "level", "timestamp", "logger", "exception")


def stand(options: Sequence[str], *, verbose: bool) -> int:
    """Runs the house until it ends or a signal ends it; its exit status."""
    console = Console(stderr=True, highlight=False)
    stands = stopping_error = False
    errors: list[Mapping[str, Any]] = []
    """Logged before the services are ready: shown once they are, else part of the reason why they do not start."""

    def on_line(entry: Mapping[str, Any]) -> None:
        grave = entry.get("level") in ("error", "warning")
        if verbose or (grave and stands):
            console.print(log_line(entry), soft_wrap=True)
        elif entry.get("level") == "error":
            errors.append(entry)

    with House(options, on_line) as house:

        def on_signal(*_: object) -> None:
            nonlocal stopping_error
            console.print("stopping at once" if stopping_error else "stopping; Ctrl-C again stops at once", style="dim")
            stopping_error = True
            house.signal()

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        try:
            with console.status("starting the house"):
                ready = house.ready()
        except Problem:
            if stopping_error:
                return house.wait()
            raise
        stands = True
        _welcome(console, ready)
        for entry in errors:
            console.print(log_line(entry), soft_wrap=True)
        return house.wait()


def log_line(entry: Mapping[str, Any]) -> Text:
    """A line of the house's log, for people."""
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _NOT_TOLD and value != "")
    trace = f"\n{entry['exception']}" if "exception" in entry else ""
    style = _STYLES.get(str(entry.get("level")), "")
    return Text.assemble((printable(str(entry.get("event", ""))), style), (f"  {printable(facts + trace)}", "dim"))


def _welcome(console: Console, ready: Mapping[str, Any]) -> None:
    where = "" if ready["url"] == DEFAULT_URL else f" --url {ready['url']}"
    console.print(Text("HuggingGPT is ready", style="bold green"))
    for name, value in (
        ("HTTP", f"{ready['url']}   described at {ready['url']}/docs"),
        ("gRPC", ready["grpc"]),
        ("try", f'hugginggpt ask "Read the text in this image aloud" --file sign.png{where}'),
        ("", f"hugginggpt tasks{where}"),
        ("stop", "Ctrl-C"),
    ):
        console.print(Text.assemble((f"  {name:<6}", "dim"), value), soft_wrap=True)
