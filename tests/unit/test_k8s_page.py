"""k8s/README.md says what is there, and its overlay is one that renders and keeps the rules."""

import re
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from tests.manifests.deployment import House
from tests.manifests.rendering import K8S, components, overlays, rendered
from tests.manifests.rules import RULES

pytestmark = pytest.mark.slow

PAGE = (K8S / "README.md").read_text(encoding="utf-8")
MAKEFILES = (K8S.parent / "Makefile", K8S.parent / "docker" / "images.mk")
_BLOCK = re.compile(r"^ *```yaml\n((?: *apiVersion: kustomize| {2}- target:).*?)^ *```", re.DOTALL | re.MULTILINE)

MODEL_INIT = """\
namespace: hugginggpt
resources: [../../base]
components: [../../components/text, ../../components/model-init]
patches:
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests, to be added to."""
    return Path(shutil.copytree(K8S, tmp_path_factory.mktemp("house") / "k8s"))


@pytest.fixture(scope="module")
def mine(copy: Path) -> House:
    """The overlay that the page has a reader write, with its list of models."""
    overlay, models, *_ = _BLOCK.findall(PAGE)
    return _rendered(copy / "overlays" / "mine", dedent(overlay) + models)


def _rendered(folder: Path, overlay: str) -> House:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(overlay, encoding="utf-8")
    return House.read(rendered(folder))


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", RULES)
def test_its_overlay_keeps_the_rules(mine: House, rule: str) -> None:
    assert list(RULES[rule](mine)) == []


@pytest.mark.needs("kubectl")
def test_its_overlay_changes_what_it_says(mine: House) -> None:
    assert "registry.example.org/hugginggpt/core:0.1.0" in {container.image for container in mine.containers}
    assert len([document for document in mine.documents if "EXPERT_ALLOWED" in str(document)]) == 2


@pytest.mark.needs("kubectl")
def test_where_there_is_no_runtime_class_none_is_asked_for(copy: Path) -> None:
    overlay, _, cloud, _ = _BLOCK.findall(PAGE)
    house = _rendered(copy / "overlays" / "cloud", dedent(overlay) + cloud)
    assert not [workload.name for workload in house.workloads if "runtimeClassName" in workload.pod]


@pytest.mark.needs("kubectl")
def test_weights_are_fetched_from_a_mirror_alone(copy: Path) -> None:
    *_, mirror = _BLOCK.findall(PAGE)
    house = _rendered(copy / "overlays" / "mirror", MODEL_INIT + mirror)
    (policy,) = (each for each in house.of("NetworkPolicy") if each["metadata"]["name"] == "fetching")
    assert policy["spec"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.1.4.0/24"}}]


def test_it_tells_of_every_component_and_every_overlay() -> None:
    named = set(re.findall(r"`([a-z0-9-]+)`", PAGE[PAGE.index("## The map") : PAGE.index("## Experts")]))
    there = {name.partition("/")[0] for name in components()} | set(overlays())
    assert there - named == set()


def test_its_links_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", PAGE)
    assert {anchor for page, anchor in links if not page} <= anchors
    assert [page for page, _ in links if page and not (K8S / page).exists()] == []


def test_what_it_has_make_do_is_there() -> None:
    targets = {name for file in MAKEFILES for name in re.findall(r"^([a-z-]+):", file.read_text(), re.MULTILINE)}
    assert set(re.findall(r"(?:^ *|`)make ([a-z-]+)", PAGE, re.MULTILINE)) - targets == set()
