"""The pages of k8s/ are complete, and their example overlays and components render and keep the rules."""

import re
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from tests.manifests.deployment import Manifests
from tests.manifests.environment import environment_of
from tests.manifests.rendering import K8S, components, overlays, render
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
ALLOWED = """\
namespace: hugginggpt
resources: [../../base]
components:
  - ../../components/vision
  - ../../components/vision/prefetch
  - ../../components/gpu
  - ../../components/cpu-fallback
  - ../../components/model-prefetch
"""
COLOURS = """\
namespace: hugginggpt
resources: [../../base]
components: [../../components/colours, ../../components/postgres, ../../components/s3]
"""
PRODUCTION = (K8S / "overlays" / "production" / "kustomization.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of k8s/, to which tests add overlays."""
    return Path(shutil.copytree(K8S, tmp_path_factory.mktemp("hugginggpt") / "k8s"))


@pytest.fixture(scope="module")
def colours(copy: Path) -> Manifests:
    """The base with the example component for an expert of the reader's own."""
    folder = copy / "components" / "colours"
    folder.mkdir()
    for name, text in re.findall(
        r"`k8s/components/colours/(\S+)`:\n\n```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    ):
        (folder / name).write_text(text, encoding="utf-8")
    return _render_overlay(copy / "overlays" / "colours", COLOURS)


@pytest.fixture(scope="module")
def mine(copy: Path) -> Manifests:
    """The overlay in the production guide."""
    return _render_overlay(copy / "overlays" / "mine", dedent(_BLOCK.findall(PAGE)[0]))


def _render_overlay(folder: Path, overlay: str) -> Manifests:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(overlay, encoding="utf-8")
    return Manifests.read(render(folder))


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", RULES)
def test_example_overlay_keeps_the_rules(mine: Manifests, rule: str) -> None:
    assert list(RULES[rule](mine)) == []


@pytest.mark.needs("kubectl")
def test_example_overlay_applies_its_images(mine: Manifests) -> None:
    assert "registry.example.org/hugginggpt/core:0.1.0" in {container.image for container in mine.containers}


@pytest.mark.needs("kubectl")
def test_allowed_models_are_set_in_one_place(copy: Path) -> None:
    (models,) = re.findall(r"^```yaml\n(configMapGenerator:\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    manifests = _render_overlay(copy / "overlays" / "allowed", ALLOWED + models)
    allowed = {
        f"{container.workload.name} {container.spec['name']}": environment_of(manifests, container)["EXPERT_ALLOWED"]
        for container in manifests.containers
        if "vision" in container.workload.name
    }
    assert set(allowed.values()) == {"google/vit-base-patch16-224,PekingU/rtdetr_r18vd_coco_o365"}
    assert len(allowed) == 5  # server and init container on GPU and on CPU, and the prefetch


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"external_ingress_is_limited"}))  # which knows our images only
def test_example_component_of_an_expert_keeps_the_rules(colours: Manifests, rule: str) -> None:
    assert [message for message in RULES[rule](colours) if "colours" in message] == []


@pytest.mark.needs("kubectl")
def test_example_component_of_an_expert_gets_the_shared_settings(colours: Manifests) -> None:
    (expert,) = (workload for workload in colours.workloads if workload.name == "expert-colours")
    assert expert.is_expert
    assert "readinessProbe" in expert.containers[0].spec


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("missing", ["keda", "prometheus", "tls", "gateway-api", "hpa", "otel"])
def test_production_renders_without_a_component(copy: Path, missing: str) -> None:
    lines = [line for line in PRODUCTION.splitlines() if not re.search(rf"components/([a-z]+/)?{missing}$", line)]
    assert len(lines) < len(PRODUCTION.splitlines())
    manifests = _render_overlay(copy / "overlays" / f"without-{missing}", "\n".join(lines))
    assert {"gateway", "orchestrator", "expert-vision"} <= {workload.name for workload in manifests.workloads}


@pytest.mark.needs("kubectl")
def test_example_restricts_model_download_to_the_mirror(copy: Path) -> None:
    *_, mirror = _BLOCK.findall(PAGE)
    manifests = _render_overlay(copy / "overlays" / "mirror", MODEL_INIT + mirror)
    (policy,) = (each for each in manifests.of_kind("NetworkPolicy") if each["metadata"]["name"] == "model-download")
    assert policy["spec"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.1.4.0/24"}}]


def test_map_lists_every_component_and_overlay() -> None:
    named = set(
        re.findall(
            r"`([a-z0-9-]+)`", PAGE[PAGE.index("## Components and overlays") : PAGE.index("## Network policies")]
        )
    )
    there = {name.partition("/")[0] for name in components()} | set(overlays())
    assert there - named == set()


def test_make_targets_exist() -> None:
    targets = {name for file in MAKEFILES for name in re.findall(r"^([a-z-]+):", file.read_text(), re.MULTILINE)}
    assert set(re.findall(r"(?:^ *|`)make ([a-z-]+)", PAGE, re.MULTILINE)) - targets == set()
