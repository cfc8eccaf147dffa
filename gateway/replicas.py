"""Addresses of all replicas behind a gRPC target, for requests that every replica must carry out."""

import asyncio
import socket

from services.common.errors import Unavailable

_DNS = "dns:///"
_LISTS = ("ipv4:", "ipv6:")


async def addresses(target: str) -> list[str]:
    """Returns host:port of every server behind the target.

    Args:
        target: host:port, dns:///name:port, or ipv4: and ipv6: with addresses by comma.

    Raises:
        Unavailable: the name cannot be resolved.
    """
    for scheme in _LISTS:
        if target.startswith(scheme):
            return target.removeprefix(scheme).split(",")
    host, _, port = target.removeprefix(_DNS).rpartition(":")
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (socket.gaierror, ValueError) as error:
        raise Unavailable(f"{target} cannot be resolved", remedy="try again; if it lasts, look at its DNS") from error
    return list(dict.fromkeys(_joined(str(where[0]), int(where[1])) for *_, where in found))


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
