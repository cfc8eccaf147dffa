"""The table of allowed calls in k8s/base/README.md agrees with the rules for the network policies."""

from tests.manifests.rendering import K8S
from tests.manifests.rules.network import ALLOWED_CALLS, COLLECTOR


def test_readme_lists_the_allowed_calls() -> None:
    assert _documented_calls() == ALLOWED_CALLS | {"all": {COLLECTOR}}


def _documented_calls() -> dict[str, set[str]]:
    """Callees in the cluster by caller, from the table of k8s/base/README.md."""
    lines = (K8S / "base" / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| caller | may call"))
    rows = [line.split("|")[1:3] for line in lines[start + 2 : lines.index("", start)]]
    return {caller.strip(): set(callees.replace(",", " ").split()) for caller, callees in rows}
