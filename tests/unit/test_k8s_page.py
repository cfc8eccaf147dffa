"""The pages of k8s/ are complete, and their example overlays and commands work."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.manifests.deployment import Manifests
from tests.manifests.environment import environment_of
from tests.manifests.rendering import K8S, components, overlays, render, render_overlay
from tests.manifests.rules import RULES
from tests.manifests.rules.images import version
from tests.manifests.rules.network import identity_endpoints
from tests.manifests.schemas import VERSIONS, violations
from tests.manifests.upgrade import rejected_changes

pytestmark = pytest.mark.slow

PAGE = (K8S / "README.md").read_text(encoding="utf-8")
POLICIES = (K8S / "base" / "README.md").read_text(encoding="utf-8")
SPLIT = (K8S / "components" / "keda" / "README.md").read_text(encoding="utf-8")
BULK = (K8S / "components" / "bulk" / "README.md").read_text(encoding="utf-8")
OBSERVABILITY = (K8S / "components" / "observability" / "README.md").read_text(encoding="utf-8")
WEIGHTS = (K8S / "components" / "model-prefetch" / "README.md").read_text(encoding="utf-8")
MAKEFILES = (K8S.parent / "Makefile", K8S.parent / "docker" / "images.mk")
MAX_PAGE_LINES, MAX_OVERLAY_LINES, MAX_EXPERT_LINES, MAX_COMMANDS, MAX_BULK_COMMANDS = 350, 25, 20, 8, 4

BASE = "namespace: hugginggpt\nresources: [../../base]\n"
ALLOWED = f"""{BASE}components:
  - ../../components/vision
  - ../../components/vision/prefetch
  - ../../components/gpu
  - ../../components/cpu-fallback
  - ../../components/model-prefetch
"""
MODEL_INIT = f"{BASE}components: [../../components/text, ../../components/model-init]\npatches:\n"
PRODUCTION = (K8S / "overlays" / "production" / "kustomization.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a git repository of the manifests, with the tag of their version."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(K8S, folder / "k8s")
    for command in (
        "init --quiet",
        "add .",
        "-c user.name=test -c user.email=test@example.org commit --quiet --message release",
        f"tag v{version()}",
    ):
        subprocess.run(["git", "-C", folder, *command.split()], check=True)
    return f"file://{folder}"


@pytest.fixture(scope="module")
def mine(repository: str, tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """The overlay of one's own in the production guide, with the example of an expert of one's own."""
    folder = tmp_path_factory.mktemp("mine")
    overlay = example("mine/kustomization.yaml").replace("resources: [", "resources: [colours, ")
    write(folder / "kustomization.yaml", overlay.replace("REPOSITORY", repository))
    write(folder / "colours" / "kustomization.yaml", example("mine/colours/kustomization.yaml"), repository)
    return Manifests.read(render(folder))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of k8s/, to which tests add overlays."""
    return Path(shutil.copytree(K8S, tmp_path_factory.mktemp("hugginggpt") / "k8s"))


def example(name: str) -> str:
    """The file that the page shows under a name."""
    (text,) = re.findall(rf"`{re.escape(name)}`:\n\n *```yaml\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    return dedent(text)


def write(file: Path, text: str, repository: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace("REPOSITORY", repository), encoding="utf-8")


def render_in(folder: Path, overlay: str, repository: str = "") -> Manifests:
    write(folder / "kustomization.yaml", overlay, repository)
    return Manifests.read(render(folder))


def commands(heading: str) -> list[str]:
    """Commands of a section of the page; a line that ends with a backslash continues in the next one."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section, re.DOTALL | re.MULTILINE)
    joined = re.sub(r"\\\n *", " ", "".join(map(dedent, blocks)))
    return [line for line in joined.splitlines() if line.strip()]


def test_page_and_examples_are_short() -> None:
    assert len(PAGE.splitlines()) <= MAX_PAGE_LINES
    assert len(example("mine/kustomization.yaml").splitlines()) <= MAX_OVERLAY_LINES
    assert len(example("mine/colours/kustomization.yaml").splitlines()) <= MAX_EXPERT_LINES


def test_first_answer_takes_few_commands() -> None:
    until_answer = [line for line in commands("On one machine") if not re.match(r"export|hugginggpt|kind create", line)]
    assert any("/v1/runs" in line for line in until_answer)
    assert len(until_answer) <= MAX_COMMANDS


@pytest.mark.parametrize("heading", re.findall(r"^## (.*)$", PAGE, re.MULTILINE))
def test_commands_are_valid_shell(heading: str) -> None:
    for command in commands(heading):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command
        assert shlex.split(command, comments=True)


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", RULES)
def test_own_overlay_keeps_the_rules(mine: Manifests, rule: str) -> None:
    """Those that name images and ports of ours do not apply to an expert of one's own."""
    found = list(RULES[rule](mine))
    assert [each for each in found if rule != "external_ingress_is_limited" or "colours" not in each] == []


@pytest.mark.needs("kubectl")
def test_own_overlay_uses_its_registry_for_every_image(mine: Manifests) -> None:
    names = {c.image.partition("/")[0] for c in mine.containers if "collector" not in c.image}
    assert names == {"registry.example.org"}


@pytest.mark.needs("kubectl")
def test_own_overlay_can_be_applied_over_production(mine: Manifests) -> None:
    changed = list(rejected_changes(render_overlay("production"), mine))
    assert changed == ["PersistentVolumeClaim/models: spec.storageClassName cannot change"]


@pytest.mark.needs("kubectl")
def test_own_expert_gets_the_shared_settings(mine: Manifests) -> None:
    (expert,) = (workload for workload in mine.workloads if workload.name == "expert-colours")
    assert expert.is_expert
    assert "readinessProbe" in expert.containers[0].spec
    assert environment_of(mine, expert.containers[0])["EXPERT_MEMORY_BYTES"] == "1000000000"
    assert "TLS_KEY" in environment_of(mine, expert.containers[0])
    assert expert.containers[0].image == "registry.example.org/experts/colours:1.0.0"
    assert "args" not in expert.containers[0].spec


@pytest.fixture(scope="module")
def split(copy: Path, repository: str) -> Manifests:
    """Production with the example of two Deployments of one expert."""
    second, first = re.findall(r"^```yaml\n(.*?)^```", SPLIT, re.DOTALL | re.MULTILINE)
    write(copy / "overlays" / "split" / "detection" / "kustomization.yaml", second, repository)
    return render_in(copy / "overlays" / "split", f"resources: [../production, detection]\n{first}")


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", RULES)
def test_example_of_two_deployments_keeps_the_rules(split: Manifests, rule: str) -> None:
    assert list(RULES[rule](split)) == []


@pytest.mark.needs("kubectl")
def test_example_gives_each_deployment_its_models(split: Manifests) -> None:
    allowed = {
        container.workload.name: environment_of(split, container).get("EXPERT_ALLOWED")
        for workload in split.long_running
        for container in workload.main_containers
        if "vision" in workload.name
    }
    assert allowed == {
        "expert-vision": "google/vit-base-patch16-224",
        "expert-vision-detection": "PekingU/rtdetr_r18vd_coco_o365",
    }


@pytest.mark.needs("kubectl")
def test_example_of_absolute_runbook_links_applies_to_every_alert(copy: Path) -> None:
    example = re.search(r"^ *```yaml\n(.*?)^ *```", OBSERVABILITY, re.DOTALL | re.MULTILINE)
    assert example
    overlay = f"{BASE}components: [../../components/prometheus]\n{dedent(example[1])}"
    (rules,) = render_in(copy / "overlays" / "runbooks", overlay).of_kind("PrometheusRule")
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    page = "https://git.example.org/hugginggpt/blob/v0.1.0/k8s/components/observability/README.md"
    assert {each["annotations"]["runbook_url"] for each in alerts} == {
        f"{page}#{each['alert'].lower()}" for each in alerts
    }


def write_bulk(copy: Path, *components: str, job: str) -> None:
    """Writes the example of a bulk job: with further components after the job's own, and the patches of the page.

    Components are those of the copy, because each one of a repository is a clone.
    """
    example, nightly, workers = (
        dedent(each) for each in re.findall(r"^ *```yaml\n(.*?)^ *```", BULK, re.DOTALL | re.MULTILINE)
    )
    added = "".join(f"  - REPOSITORY//k8s/components/{name}?ref=v{version()}\n" for name in components)
    example = re.sub(r"(?m)^.*components/bulk\?.*\n", lambda found: found[0] + added, example)
    folder = copy / "overlays" / "bulk"
    write(folder / "job" / "job.json", job)
    patches = nightly + (workers.removeprefix("patches:\n") if components else "")
    local = re.sub(r"REPOSITORY//k8s/(\S+)\?ref=v[\d.]+", r"../../../\1", example + patches)
    write(folder / "job" / "kustomization.yaml", local)


@pytest.fixture(scope="module", params=[(), ("bulk/ray",)], ids=["pod", "ray"])
def bulk(copy: Path, request: pytest.FixtureRequest) -> Manifests:
    """Production with the example of a bulk job."""
    write_bulk(copy, *request.param, job="{}")
    return render_in(copy / "overlays" / "bulk", "resources: [../production, job]\n")


def test_bulk_job_takes_few_commands() -> None:
    assert len(commands("Run a pipeline over a bucket")) <= MAX_BULK_COMMANDS


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("rule", RULES)
def test_example_of_a_bulk_job_keeps_the_rules(bulk: Manifests, rule: str) -> None:
    assert list(RULES[rule](bulk)) == []


@pytest.mark.needs("kubectl")
def test_example_of_a_bulk_job_matches_the_schemas(bulk: Manifests) -> None:
    assert [each for version in VERSIONS for each in violations(bulk, version)] == []


@pytest.mark.needs("kubectl")
def test_example_of_a_bulk_job_refers_to_its_job_and_the_shared_settings(bulk: Manifests) -> None:
    pods = [each for each in bulk.workloads if each.name in {"bulk", "bulk-head"}]
    for pod in pods:
        job = bulk.find("ConfigMap", pod.volumes["job"]["configMap"]["name"])
        assert job
        assert job["data"] == {"job.json": "{}"}
        environment = environment_of(bulk, pod.containers[0])
        assert environment["EXPERT_MEMORY_BYTES"] == "20000000000"
        assert environment["ARTIFACTS_URL"] == "s3://hugginggpt/artifacts"
    assert len(pods) == 1 + len(list(bulk.of_kind("RayJob")))


@pytest.mark.needs("kubectl")
def test_examples_change_the_schedule_and_the_workers(bulk: Manifests) -> None:
    assert [each["spec"]["suspend"] for each in bulk.of_kind("CronJob") if each["metadata"]["name"] == "bulk"] == [
        False
    ]
    groups = [each["spec"]["rayClusterSpec"]["workerGroupSpecs"][0] for each in bulk.of_kind("RayJob")]
    assert {group[name] for group in groups for name in ("replicas", "minReplicas", "maxReplicas")} <= {8}


@pytest.mark.needs("kubectl")
def test_example_of_a_bulk_job_can_be_applied_again_with_another_job(copy: Path) -> None:
    write_bulk(copy, "bulk/ray", job="{}")
    first = Manifests.read(render(copy / "overlays" / "bulk" / "job"))
    write_bulk(copy, "bulk/ray", job='{"limit": 1}')
    second = Manifests.read(render(copy / "overlays" / "bulk" / "job"))
    assert first != second
    assert list(rejected_changes(first, second)) == []


@pytest.mark.needs("kubectl")
def test_allowed_models_are_set_in_one_place(copy: Path) -> None:
    (models,) = re.findall(r"^```yaml\n(configMapGenerator:\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    manifests = render_in(copy / "overlays" / "allowed", ALLOWED + models)
    allowed = {
        f"{container.workload.name} {container.spec['name']}": environment_of(manifests, container)["EXPERT_ALLOWED"]
        for container in manifests.containers
        if "vision" in container.workload.name
    }
    assert set(allowed.values()) == {"google/vit-base-patch16-224,PekingU/rtdetr_r18vd_coco_o365"}
    assert len(allowed) == 5  # server and init container on GPU and on CPU, and the prefetch


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("missing", ["keda", "prometheus", "tls", "gateway-api", "hpa", "otel"])
def test_production_renders_without_a_component(copy: Path, missing: str) -> None:
    lines = [line for line in PRODUCTION.splitlines() if not re.search(rf"components/([a-z]+/)?{missing}$", line)]
    assert len(lines) < len(PRODUCTION.splitlines())
    manifests = render_in(copy / "overlays" / f"without-{missing}", "\n".join(lines))
    assert {"gateway", "orchestrator", "expert-vision"} <= {workload.name for workload in manifests.workloads}


@pytest.mark.needs("kubectl")
def test_example_restricts_model_download_to_the_mirror(copy: Path) -> None:
    (mirror,) = re.findall(r"^```yaml\n(.*?)^```", WEIGHTS, re.DOTALL | re.MULTILINE)
    manifests = render_in(copy / "overlays" / "mirror", MODEL_INIT + mirror)
    (policy,) = (each for each in manifests.of_kind("NetworkPolicy") if each["metadata"]["name"] == "model-download")
    assert policy["spec"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.1.4.0/24"}}]


@pytest.mark.needs("kubectl")
def test_example_sets_the_identity_of_the_cloud(copy: Path, repository: str) -> None:
    (identity,) = re.findall(r"^```yaml\n(.*?)^```", POLICIES, re.DOTALL | re.MULTILINE)
    manifests = render_in(copy / "overlays" / "identity", BASE + identity, repository)
    account = manifests.find("ServiceAccount", "gateway") or {}
    assert list(account["metadata"]["annotations"].values()) == ["me@my-project.iam.gserviceaccount.com"]
    (gateway,) = (workload for workload in manifests.workloads if workload.name == "gateway")
    assert identity_endpoints(manifests, gateway)


def test_map_lists_every_component_and_overlay() -> None:
    section = PAGE[PAGE.index("## Components and overlays") : PAGE.index("## Experts")]
    named = {name.partition("/")[0] for name in re.findall(r"`([a-z0-9/-]+)`", section)}
    there = {name.partition("/")[0] for name in components()} | set(overlays())
    assert there - named == set()


def test_make_targets_exist() -> None:
    targets = {name for file in MAKEFILES for name in re.findall(r"^([a-z-]+):", file.read_text(), re.MULTILINE)}
    assert set(re.findall(r"(?:^ *|`)make ([a-z-]+)", PAGE, re.MULTILINE)) - targets == set()


def test_page_names_the_checked_versions() -> None:
    assert re.findall(r"\b1\.\d\d\b", PAGE.partition("\n## ")[0]) == list(VERSIONS)
