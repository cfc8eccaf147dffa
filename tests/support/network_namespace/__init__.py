"""Runs services in a network namespace whose only connection ends at a listener that records all traffic."""

import os
import subprocess
import sys
from pathlib import Path

OUTSIDE = "192.0.2.1"
"""Address of the listener, which also receives traffic to all other addresses."""
HOUSE = "192.0.2.2"
ANYWHERE = "93.184.216.34"
"""Address to which the listener resolves every name; looks like a public address."""
PORTS = (80, 443, 8000)
"""Ports on which the listener accepts connections; it records traffic to all other ports."""


def behind(module: str, *arguments: str) -> list[str]:
    """A command that runs a module in a new network namespace with administrator rights."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--", sys.executable, "-m", module, *arguments]


def set_up(*command: str) -> None:
    """Runs a command that configures this network namespace.

    Raises:
        RuntimeError: The command failed; the message states why.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def only_ipv4() -> None:
    """Disables IPv6, which would send neighbour discovery packets."""
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
    set_up("ip", "link", "set", "lo", "up")
