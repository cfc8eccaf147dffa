"""Containers of tests do not affect servers of other tests."""

import socket

from tests.containers import CONTAINERS
from tests.containers.engine import Engine
from tests.containers.images import Builder

pytestmark = CONTAINERS

PORT = 8000


def test_server_on_localhost_is_reachable_at_the_number_of_a_published_port(engine: Engine, builder: Builder) -> None:
    command = ("python", "-m", "http.server", str(PORT))
    with engine.network() as network:
        container = engine.run(builder.base(), *command, network=network, ports=[PORT])
        address = ("127.0.0.1", int(container.address(PORT).rpartition(":")[2]))
        with socket.create_server(address) as server, socket.create_connection(address, timeout=10) as client:
            accepted, client_address = server.accept()
            accepted.close()
            assert client_address == client.getsockname()
