"""Records all traffic at every address: connections, DNS queries and packets."""

import socket
import struct
import threading
from collections.abc import Callable

from tests.support.network_namespace import ANYWHERE, PORTS

_IPV4 = 0x0800
_OF_THE_LINK = 14
"""Length of the link-layer header in bytes."""
_QUESTION = 12
"""Offset of the first question in a DNS message."""
_A = 1


class Listener:
    """Records traffic; every server is a daemon thread."""

    def __init__(self, interface: str) -> None:
        self._lock = threading.Lock()
        self._seen: list[str] = []
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))
        packets.bind((interface, _IPV4))
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind(("0.0.0.0", 53))  # inside a network namespace
        self._serve(lambda: self._packet(packets))
        self._serve(lambda: self._name(names))
        for port in PORTS:
            server = socket.create_server(("0.0.0.0", port), backlog=100)  # likewise
            self._serve(lambda server=server, port=port: self._connection(server, port))  # type: ignore[misc]  # the loop's

    def seen(self) -> list[str]:
        """Traffic since the last call: packets by destination, DNS names, and connections."""
        with self._lock:
            seen, self._seen = self._seen, []
        return sorted(set(seen))

    def _serve(self, once: Callable[[], None]) -> None:
        def forever() -> None:
            while True:
                once()

        threading.Thread(target=forever, daemon=True).start()

    def _note(self, what: str) -> None:
        with self._lock:
            self._seen.append(what)

    def _packet(self, packets: socket.socket) -> None:
        content, sender = packets.recvfrom(2048)
        if sender[2] != socket.PACKET_OUTGOING:
            to = socket.inet_ntoa(content[_OF_THE_LINK + 16 : _OF_THE_LINK + 20])
            self._note(f"packet to {to}")

    def _name(self, names: socket.socket) -> None:
        asked, sender = names.recvfrom(2048)
        end = asked.index(0, _QUESTION)
        (kind,) = struct.unpack("!H", asked[end + 1 : end + 3])
        self._note(f"name {_spelt(asked[_QUESTION:end])}")
        answer = b"\xc0\x0c" + struct.pack("!HHIH", _A, 1, 1, 4) + socket.inet_aton(ANYWHERE) if kind == _A else b""
        head = asked[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answer)), 0, 0)
        names.sendto(head + asked[_QUESTION : end + 5] + answer, sender)

    def _connection(self, server: socket.socket, port: int) -> None:
        connection, _ = server.accept()
        self._note(f"connection to {connection.getsockname()[0]}:{port}")
        connection.close()


def _spelt(labels: bytes) -> str:
    words, rest = [], labels
    while rest:
        words.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    return ".".join(words)
