"""Records all traffic at every address: connections, DNS queries and packets."""

import socket
import struct
import threading
from collections.abc import Callable

from tests.support.network_namespace import RESOLVED_ADDRESS, TCP_PORTS

_IPV4 = 0x0800
_LINK_HEADER_BYTES = 14
_QUESTION_OFFSET = 12
"""Offset of the first question in a DNS message."""
_A = 1


class Listener:
    """Records traffic; every server is a daemon thread."""

    def __init__(self, interface: str) -> None:
        self._lock = threading.Lock()
        self._traffic: list[str] = []
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))
        packets.bind((interface, _IPV4))
        dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        dns.bind(("0.0.0.0", 53))  # only reachable inside the network namespace
        self._serve(lambda: self._record_packet(packets))
        self._serve(lambda: self._answer_dns_query(dns))
        for port in TCP_PORTS:
            server = socket.create_server(("0.0.0.0", port), backlog=100)  # likewise
            self._serve(lambda server=server, port=port: self._record_connection(server, port))  # type: ignore[misc]  # the loop's

    def traffic(self) -> list[str]:
        """Traffic since the last call: packets by destination, DNS names, and connections."""
        with self._lock:
            traffic, self._traffic = self._traffic, []
        return sorted(set(traffic))

    def _serve(self, once: Callable[[], None]) -> None:
        def forever() -> None:
            while True:
                once()

        threading.Thread(target=forever, daemon=True).start()

    def _record(self, entry: str) -> None:
        with self._lock:
            self._traffic.append(entry)

    def _record_packet(self, packets: socket.socket) -> None:
        content, sender = packets.recvfrom(2048)
        if sender[2] != socket.PACKET_OUTGOING:
            destination = socket.inet_ntoa(content[_LINK_HEADER_BYTES + 16 : _LINK_HEADER_BYTES + 20])
            self._record(f"packet to {destination}")

    def _answer_dns_query(self, dns: socket.socket) -> None:
        query, sender = dns.recvfrom(2048)
        end = query.index(0, _QUESTION_OFFSET)
        (kind,) = struct.unpack("!H", query[end + 1 : end + 3])
        self._record(f"name {_domain_name(query[_QUESTION_OFFSET:end])}")
        answer = (
            b"\xc0\x0c" + struct.pack("!HHIH", _A, 1, 1, 4) + socket.inet_aton(RESOLVED_ADDRESS) if kind == _A else b""
        )
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answer)), 0, 0)
        dns.sendto(head + query[_QUESTION_OFFSET : end + 5] + answer, sender)

    def _record_connection(self, server: socket.socket, port: int) -> None:
        connection, _ = server.accept()
        self._record(f"connection to {connection.getsockname()[0]}:{port}")
        connection.close()


def _domain_name(labels: bytes) -> str:
    parts, rest = [], labels
    while rest:
        parts.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    return ".".join(parts)
