"""Where the gateway is: one that runs, or one started for this command alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.cli.api import Api
from gateway.cli.house import House
from gateway.cli.problem import NobodyThere

DEFAULT_URL = "http://127.0.0.1:8080"
ANY_PORTS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@contextmanager
def gateway(url: str | None, busy: Callable[[str], None]) -> Iterator[Api]:
    """A gateway that answers; none at the default address means that a house is started, and stopped after.

    Args:
        url: the gateway wanted; None for the default address.
        busy: told what takes time.

    Raises:
        Problem: another server answers there, nobody answers at a wanted address, or the house does not start.
    """
    with Api(url or DEFAULT_URL) as api:
        try:
            api.greet()
        except NobodyThere:
            if url:
                raise
        else:
            yield api
            return
    busy("starting the house")
    with House(ANY_PORTS, on_line=lambda _: None) as house, Api(house.ready()["url"]) as api:
        busy("")
        yield api
