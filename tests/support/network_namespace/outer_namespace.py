"""Runs the listener, and the services in an inner network namespace connected by a virtual cable.

Usage: python -m tests.support.network_namespace.outer_namespace HOME.

Prints each message of the services with the traffic since the last one.
"""

import json
import subprocess
import sys

from tests.support.network_namespace import (
    LISTENER_ADDRESS,
    LISTENER_INTERFACE,
    SERVICES_INTERFACE,
    configure,
    disable_ipv6,
    namespace_command,
)
from tests.support.network_namespace.listener import Listener


def main(home: str) -> None:
    disable_ipv6()
    configure("ip", "link", "add", LISTENER_INTERFACE, "type", "veth", "peer", "name", SERVICES_INTERFACE)
    configure("ip", "address", "add", f"{LISTENER_ADDRESS}/24", "dev", LISTENER_INTERFACE)
    configure("ip", "link", "set", LISTENER_INTERFACE, "up")
    configure("ip", "route", "add", "local", "default", "dev", "lo", "table", "main")
    listener = Listener(LISTENER_INTERFACE)
    with subprocess.Popen(
        namespace_command("tests.support.network_namespace.local_stack", home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as services:
        assert services.stdin
        assert services.stdout
        assert services.stdout.readline() == "namespace created\n"
        configure("ip", "link", "set", SERVICES_INTERFACE, "netns", str(services.pid))
        services.stdin.write("connected\n")
        services.stdin.flush()
        for line in services.stdout:
            sys.stdout.write(json.dumps({"message": json.loads(line), "traffic": listener.traffic()}) + "\n")
            sys.stdout.flush()
    sys.exit(services.returncode)


if __name__ == "__main__":
    main(sys.argv[1])
