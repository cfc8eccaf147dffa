"""A house in a network of its own, whose only way out ends at a listener that sees all and gives nothing."""

import os
import subprocess
import sys
from pathlib import Path

OUTSIDE = "192.0.2.1"
"""Where the listener is; it takes whatever is sent to any other address, too."""
HOUSE = "192.0.2.2"
ANYWHERE = "93.184.216.34"
"""What every name outside stands for: an address of the internet, to those who ask."""
PORTS = (80, 443, 8000)
"""Where the listener takes connections; it sees what is sent to others."""


def behind(module: str, *arguments: str) -> list[str]:
    """A command that runs a module in a network of its own, where it may do as it likes."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--", sys.executable, "-m", module, *arguments]


def set_up(*command: str) -> None:
    """Runs a command that changes this network.

    Raises:
        RuntimeError: it cannot be done, and why.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def only_ipv4() -> None:
    """IPv6 would announce itself unasked."""
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
    set_up("ip", "link", "set", "lo", "up")
