"""Where the gateway is: one that runs, or one started for this command alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.cli.local_stack import House
from gateway.client import HuggingGPT, Unreachable
from gateway.client.request_body import Sent

DEFAULT_URL = "http://127.0.0.1:8080"
ANY_PORTS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@contextmanager
def gateway(
    url: str | None, busy: Callable[[str], None], api_key: str | None = None, on_sent: Sent | None = None
) -> Iterator[HuggingGPT]:
    """A gateway that answers; none at the default address means that a house is started, and stopped after.

    Args:
        url: the gateway wanted; None for the default address.
        busy: told what takes time.
        api_key: who asks; None for what the environment says.
        on_sent: told of bytes of files sent, and of all there are.

    Raises:
        HuggingGPTError: another server answers there, or nobody answers at a wanted address.
        Problem: the house does not start.
    """
    with HuggingGPT(url or DEFAULT_URL, api_key, on_sent=on_sent) as there:
        try:
            there.greet()
        except Unreachable:
            if url:
                raise
        else:
            yield there
            return
    busy("starting the house")
    with (
        House(ANY_PORTS, on_line=lambda _: None) as house,
        HuggingGPT(house.ready()["url"], api_key, on_sent=on_sent) as there,
    ):
        busy("")
        yield there
