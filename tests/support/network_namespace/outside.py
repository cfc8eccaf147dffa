"""The outer network namespace: prints, after each line of the services, the traffic seen so far.

Usage: python -m tests.support.network_namespace.outside HOME.

The services run in an inner network namespace, connected by a virtual cable.
"""

import json
import subprocess
import sys

from tests.support.network_namespace import OUTSIDE, behind, only_ipv4, set_up
from tests.support.network_namespace.listener import Listener


def main(home: str) -> None:
    only_ipv4()
    set_up("ip", "link", "add", "street", "type", "veth", "peer", "name", "house")
    set_up("ip", "address", "add", f"{OUTSIDE}/24", "dev", "street")
    set_up("ip", "link", "set", "street", "up")
    set_up("ip", "route", "add", "local", "default", "dev", "lo", "table", "main")
    listener = Listener("street")
    with subprocess.Popen(
        behind("tests.support.network_namespace.local_stack", home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as house:
        assert house.stdin
        assert house.stdout
        assert house.stdout.readline() == "here\n"
        set_up("ip", "link", "set", "house", "netns", str(house.pid))
        house.stdin.write("connected\n")
        house.stdin.flush()
        for line in house.stdout:
            sys.stdout.write(json.dumps({"told": json.loads(line), "seen": listener.seen()}) + "\n")
            sys.stdout.flush()
    sys.exit(house.returncode)


if __name__ == "__main__":
    main(sys.argv[1])
