"""Local addresses for child processes that have not started yet."""

import random
import socket
from contextlib import ExitStack, suppress

from services.common.errors import InvalidRequest, Unavailable

LAST_PORT = 65535
FREE_PORTS = range(15_000, 32_000)
"""Ports to choose from for port 0: below those that systems assign to connections, so that none takes a chosen port."""
_TRIES = 100


class Ports(ExitStack):
    """Reserves ports for gRPC servers within the block, so that a restarted child gets its port again.

    A reserved socket is bound but does not listen, so that it receives no connections. SO_REUSEPORT lets the child bind
    the same port; programs of other users, and those that do not set the option, cannot.
    """

    def reserve(self) -> str:
        """A loopback address with a port that no other program gets."""
        reserved = self.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{reserved.getsockname()[1]}"


def free_address(address: str, *, option: str) -> str:
    """Checks that an address is free; replaces port 0 by a free one.

    Args:
        address: host:port.
        option: command-line option by which the user can choose another address.

    Raises:
        InvalidRequest: it is not host:port.
        Unavailable: the address is in use, or not of this machine.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= LAST_PORT):
        raise InvalidRequest(f"{option} {address} is not host:port", remedy=f"for example {option} 127.0.0.1:8080")
    try:
        family, kind, _, _, (ip, *_) = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0]
        *others, last = [int(port)] if int(port) else random.sample(FREE_PORTS, _TRIES)
        for candidate in others:
            with suppress(OSError):
                _bind(family, kind, ip, candidate)
                return f"{host}:{candidate}"
        _bind(family, kind, ip, last)
    except OSError as error:
        remedy = f"stop the program that listens there, or choose another address with {option} 127.0.0.1:PORT"
        raise Unavailable(f"cannot listen on {address}: {error.strerror}", remedy=remedy) from error
    return f"{host}:{last}"


def _bind(family: int, kind: int, ip: str | int, port: int) -> None:
    """Binds a socket and closes it again; raises OSError if that is not possible."""
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
        probe.bind((ip, port))
