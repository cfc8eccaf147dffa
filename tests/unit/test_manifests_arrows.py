"""Who may call whom: the page tells what the rules hold the network policies to."""

from tests.manifests.rendering import K8S
from tests.manifests.rules.network import ARROWS, COLLECTOR


def test_the_page_has_the_arrows() -> None:
    assert _told() == ARROWS | {"all": {COLLECTOR}}


def _told() -> dict[str, set[str]]:
    """The table of k8s/README.md: by who calls, who is called in the house."""
    lines = (K8S / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| who | may call"))
    rows = [line.split("|")[1:3] for line in lines[start + 2 : lines.index("", start)]]
    return {who.strip(): set(called.replace(",", " ").split()) for who, called in rows}
