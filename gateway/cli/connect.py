"""Connects to a running gateway, or to local services started for one command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.cli import terminal
from gateway.cli.local_stack import LocalStack

if TYPE_CHECKING:
    from gateway.client import HuggingGPT

DEFAULT_URL = "http://127.0.0.1:8080"
ANY_PORTS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@contextmanager
def gateway(
    url: str | None,
    busy: Callable[[str], None],
    api_key: str | None = None,
    on_sent: Callable[[int, int], None] | None = None,
) -> "Iterator[HuggingGPT]":
    """Connects to a gateway. If none runs at the default address, starts local services and stops them afterwards.

    Args:
        url: address of the gateway; None for the default address.
        busy: called with a description of each slow step.
        api_key: API key; None to take it from the environment.
        on_sent: called with the bytes of files sent so far and in total.

    Raises:
        HuggingGPTError: another server answers, or nothing listens at the given address.
        Problem: the local services do not start.
    """
    from gateway.client import HuggingGPT, Unreachable

    with HuggingGPT(url or DEFAULT_URL, api_key, on_sent=on_sent) as client:
        try:
            client.greet()
        except Unreachable:
            if url:
                raise
        else:
            yield client
            return
    busy("Starting local services…")
    with (
        LocalStack(ANY_PORTS, on_line=lambda _: None) as stack,
        HuggingGPT(stack.ready()["url"], api_key, on_sent=on_sent) as client,
    ):
        busy("")
        yield client


@contextmanager
def connected_gateway(url: str | None, api_key: str | None) -> "Iterator[HuggingGPT]":
    """Connects to a gateway like gateway(); shows the connection's progress on standard error."""
    connecting = "connecting to the gateway"
    with (
        terminal.err().status(connecting) as status,
        gateway(url, lambda what: status.update(what or connecting), api_key) as client,
    ):
        yield client
