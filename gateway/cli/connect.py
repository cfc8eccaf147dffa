"""Connects to a running gateway, or to local services started for one command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.cli.local_stack import LocalStack
from gateway.client import HuggingGPT, Unreachable
from gateway.client.request_body import Sent

DEFAULT_URL = "http://127.0.0.1:8080"
ANY_PORTS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@contextmanager
def gateway(
    url: str | None, busy: Callable[[str], None], api_key: str | None = None, on_sent: Sent | None = None
) -> Iterator[HuggingGPT]:
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
