"""Public internet addresses, and the hosts and networks that an operator allows in addition."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from services.common.errors import InvalidRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LAST_PORT = 65535

_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's metadata
        "192.0.0.0/24",  # protocol assignments, and Oracle's metadata
        "192.88.99.0/24",  # 6to4 relays
        "2001::/23",  # Teredo and other protocol assignments
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which embeds an IPv4 address
        "3fff::/20",  # documentation
    )
)
"""Not public, in addition to what the ipaddress module calls private, reserved or multicast in some versions only."""


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet: not private, loopback, link-local, shared, reserved or metadata.

    An IPv6 address with an embedded IPv4 address is judged by the latter.
    """
    if isinstance(address, ipaddress.IPv6Address):
        embedded = _embedded_ipv4(address)
        if embedded is not None:
            return is_public(embedded)
        if address not in _UNICAST or address.scope_id:
            return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(address in network for network in _NOT_PUBLIC if network.version == address.version)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


@dataclass(frozen=True)
class AllowList:
    """Hosts and networks to which an operator allows requests although they are not public."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    """Lower-case name and port; port None allows all."""
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowList":
        """Reads entries such as pictures.internal, pictures.internal:8443, 10.1.0.0/16 or fd00::7.

        Raises:
            InvalidRequest: an entry is malformed.
        """
        hosts, networks = set(), []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                hosts.add(_host(entry))
        return cls(frozenset(hosts), tuple(networks))

    def allows_host(self, host: str, port: int) -> bool:
        """Whether a host is allowed by name, at a port."""
        return not self.hosts.isdisjoint({(host.lower(), port), (host.lower(), None)})

    def allows_address(self, address: Address) -> bool:
        """Whether an address is in an allowed network."""
        return any(address in network for network in self.networks if network.version == address.version)


def _host(entry: str) -> tuple[str, int | None]:
    name, colon, port = entry.lower().partition(":")
    plain = name.isascii() and name.replace("-", "").replace(".", "").replace("_", "").isalnum()
    if not plain or (colon and not (port.isascii() and port.isdecimal() and 0 < int(port) <= LAST_PORT)):
        raise InvalidRequest(
            f"{entry!r} is not a host, address or network",
            remedy="write for example pictures.internal:8443, 10.1.0.0/16",
        )
    return name, int(port) if colon else None
