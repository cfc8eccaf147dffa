"""Client that uploads a file to the gateway over a plain socket: python -m tests.bench.upload_client PORT BYTES."""

import hashlib
import json
import os
import socket
import sys
import time

BOUNDARY = b"------------------------d74496d66958873e"
"""In the format of curl; parsers search more slowly for a short boundary."""


def send(port: int, size: int) -> None:
    """Sends a form with a file of this size, and prints its seconds and the file's SHA-256 as JSON."""
    block = os.urandom(min(size, 1_000_000))
    disposition = b"--" + BOUNDARY + b"\r\nContent-Disposition: form-data; name="
    head = disposition + b'"purpose"\r\n\r\nuser_data\r\n' + disposition + b'"file"; filename="a.bin"\r\n\r\n'
    tail = b"\r\n--" + BOUNDARY + b"--\r\n"
    length = len(head) + size + len(tail)
    lines = (
        "POST /v1/files HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        f"content-type: multipart/form-data; boundary={BOUNDARY.decode()}",
        f"content-length: {length}",
        "connection: close",
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.perf_counter()
        connection.sendall("\r\n".join((*lines, "\r\n")).encode() + head)
        for _ in range(size // len(block)):
            connection.sendall(block)
        connection.sendall(tail)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        seconds = time.perf_counter() - began
    if b" 200 " not in answer[:20]:
        raise SystemExit(answer.decode(errors="replace"))
    digest = hashlib.sha256()
    for _ in range(size // len(block)):
        digest.update(block)
    print(json.dumps({"seconds": seconds, "sha256": digest.hexdigest()}))


if __name__ == "__main__":
    send(int(sys.argv[1]), int(sys.argv[2]))
