"""Runs services in a network namespace whose only connection ends at a listener that records all traffic."""

import os
import subprocess
import sys
from pathlib import Path

LISTENER_ADDRESS = "192.0.2.1"
"""Address of the listener, which also receives traffic to all other addresses."""
SERVICES_ADDRESS = "192.0.2.2"
LISTENER_INTERFACE = "listener"
SERVICES_INTERFACE = "services"
"""Ends of the virtual cable between the two namespaces."""
RESOLVED_ADDRESS = "93.184.216.34"
"""Address to which the listener resolves every name; looks like a public address."""
TCP_PORTS = (80, 443, 8000)
"""Ports on which the listener accepts connections; it records traffic to all other ports."""


def namespace_command(module: str, *arguments: str) -> list[str]:
    """A command that runs a module in a new network namespace with administrator rights."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--", sys.executable, "-m", module, *arguments]


def configure(*command: str) -> None:
    """Runs a command that configures this network namespace.

    Raises:
        RuntimeError: The command failed; the message states why.
    """
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")


def disable_ipv6() -> None:
    """Disables IPv6, which would send neighbour discovery packets, and enables the loopback interface."""
    for interfaces in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6").write_text("1")
    configure("ip", "link", "set", "lo", "up")
