"""Which addresses of the internet anybody may be sent to, and which others an operator has named."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from services.common.errors import InvalidRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LAST_PORT = 65535

_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CLOSED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's machines ask it about themselves
        "192.0.0.0/24",  # protocols' own, and Oracle's metadata
        "192.88.99.0/24",  # relays from IPv4 to 6to4
        "2001::/23",  # Teredo and other protocols' own
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
)
"""Closed beside what the ipaddress module calls private, reserved or multicast; its versions differ in some."""


def is_public(address: Address) -> bool:
    """Whether an address is anybody's to reach: no private, loopback, link-local, shared, reserved or metadata one.

    An IPv4 address inside an IPv6 one counts as itself.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST or address.scope_id:
            return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(address in network for network in _CLOSED if network.version == address.version)


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


@dataclass(frozen=True)
class AllowList:
    """Hosts and networks that an operator lets requests go to, whatever their addresses."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    """Lower-case name and port; None for any port."""
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowList":
        """Reads entries such as pictures.internal, pictures.internal:8443, 10.1.0.0/16 or fd00::7.

        Raises:
            InvalidRequest: an entry is none of these.
        """
        hosts, networks = set(), []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                hosts.add(_host(entry))
        return cls(frozenset(hosts), tuple(networks))

    def names(self, host: str, port: int) -> bool:
        """Whether the host is allowed by its name, at that port."""
        return not self.hosts.isdisjoint({(host.lower(), port), (host.lower(), None)})

    def holds(self, address: Address) -> bool:
        """Whether the address lies in an allowed network."""
        return any(address in network for network in self.networks if network.version == address.version)


def _host(entry: str) -> tuple[str, int | None]:
    name, colon, port = entry.lower().partition(":")
    plain = name.isascii() and name.replace("-", "").replace(".", "").replace("_", "").isalnum()
    if not plain or (colon and not (port.isascii() and port.isdecimal() and 0 < int(port) <= LAST_PORT)):
        raise InvalidRequest(
            f"{entry!r} is no host, address or network", remedy="write for instance pictures.internal:8443, 10.1.0.0/16"
        )
    return name, int(port) if colon else None
