"""What `make deploy` has kubectl do, where a program that notes it stands for the cluster."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.needs("kubectl")

ROOT = Path(__file__).parents[2]

SLEEPY = ("audio", "diffusion", "text", "video", "vision")

KUBECTL = """#!/bin/sh
echo "$1 $2" >> {folder}/asked
case "$1 $*" in
  kustomize*|label*|create*) exec {kubectl} "$@";;
  apply*--filename*) cat > {folder}/applied;;
esac
"""

ENGINE = """#!/bin/sh
echo "$*" >> {folder}/run
echo '{{}}'
"""


@dataclass(frozen=True)
class Cluster:
    folder: Path

    def deploy(self, overlay: str) -> "subprocess.CompletedProcess[str]":
        command = ["make", "deploy", f"OVERLAY={overlay}", f"DESCRIPTIONS={self.folder / 'descriptions'}"]
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)

    def lines(self, name: str) -> Sequence[str]:
        file = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else ()

    def has(self, program: str, text: str) -> None:
        path = self.folder / program
        path.write_text(text.format(folder=self.folder, kubectl=shutil.which("kubectl")), encoding="utf-8")
        path.chmod(0o755)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.has("kubectl", KUBECTL)
    cluster.has("docker", ENGINE)
    return cluster


def test_jobs_leave_then_all_is_applied_described_and_waited_for(cluster: Cluster) -> None:
    done = cluster.deploy("production")
    assert done.returncode == 0, done.stderr
    assert [line for line in cluster.lines("asked") if line.split()[0] not in {"kustomize", "label"}] == [
        "delete jobs",
        "apply --server-side",
        "create configmap",
        "apply --server-side",
        "wait --namespace",
    ]


def test_each_expert_that_may_sleep_is_described_by_the_image_it_runs(cluster: Cluster) -> None:
    cluster.deploy("production")
    described = [line.split()[-3:] for line in cluster.lines("run")]
    assert described == [[f"hugginggpt/expert-{name}:0.1.0-cuda", f"experts.{name}", "--describe"] for name in SLEEPY]
    (applied,) = yaml.safe_load_all("\n".join(cluster.lines("applied")))
    assert sorted(applied["data"]) == [f"{name}.json" for name in SLEEPY]


def test_where_nobody_sleeps_nobody_is_described(cluster: Cluster) -> None:
    done = cluster.deploy("local")
    assert (done.returncode, cluster.lines("run")) == (0, ())


def test_an_image_that_cannot_tell_of_itself_ends_it(cluster: Cluster) -> None:
    cluster.has("docker", "#!/bin/sh\necho no such image >&2\nexit 1\n")
    done = cluster.deploy("production")
    assert done.returncode != 0
    assert "no such image" in done.stderr
    assert not cluster.lines("applied")
