"""Loopback ports for children that do not run yet."""

import socket
from contextlib import ExitStack

from services.common.errors import InvalidRequest, Unavailable

LAST_PORT = 65535


class Ports(ExitStack):
    """Keeps ports for gRPC servers for as long as the block lasts, so that a restarted child finds its own again.

    A kept socket is bound but does not listen, so it gets no connections; SO_REUSEPORT lets the child bind beside it,
    and nobody who is another user or does not ask for it.
    """

    def keep(self) -> str:
        """An address with a port that nobody else is given."""
        kept = self.enter_context(socket.socket())
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{kept.getsockname()[1]}"


def free(address: str, *, option: str) -> str:
    """The address itself, if one can listen there now; with port 0, the same host with a free one.

    Args:
        address: host:port.
        option: what the user says to name another.

    Raises:
        InvalidRequest: it is no host:port.
        Unavailable: another program listens there, or the host is not ours.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= LAST_PORT):
        raise InvalidRequest(f"{option} {address} is no host:port", remedy=f"for example {option} 127.0.0.1:8080")
    try:
        family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
            probe.bind(where)
            return f"{host}:{probe.getsockname()[1]}"
    except OSError as error:
        remedy = f"stop the program that listens there, or choose another address with {option} 127.0.0.1:PORT"
        raise Unavailable(f"cannot listen on {address}: {error.strerror}", remedy=remedy) from error
