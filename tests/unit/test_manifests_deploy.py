"""What `make deploy` has kubectl do, where a program that notes it stands for the cluster.

And what make says of names that there are not.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl")]

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
[ "$1" = ps ] && exit
echo "$*" >> {folder}/run
echo '{{}}'
"""

BROKEN = "#!/bin/sh\nexit 1\n"


def made(*arguments: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
    command = [str(shutil.which("make")), *arguments]
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)


@dataclass(frozen=True)
class Cluster:
    folder: Path

    def deploy(self, overlay: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
        described = f"DESCRIPTIONS={self.folder / 'descriptions'}"
        return made("deploy", f"OVERLAY={overlay}", described, path=f"{self.folder}:{path}")

    def told(self) -> Sequence[str]:
        """What was asked of the cluster, beside what kubectl does by itself."""
        return [line for line in self.lines("asked") if line.split()[0] not in {"kustomize", "label"}]

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
    before, piped, after = cluster.told()[:2], cluster.told()[2:4], cluster.told()[4:]
    assert before == ["delete jobs", "apply --server-side"]
    assert sorted(piped) == ["apply --server-side", "create configmap"]  # side by side: either may be noted first
    assert after == ["wait --namespace"]


def test_each_expert_that_may_sleep_is_described_by_the_image_it_runs(cluster: Cluster) -> None:
    cluster.deploy("production")
    described = [line.split()[-3:] for line in cluster.lines("run")]
    assert described == [[f"hugginggpt/expert-{name}:0.1.0-cuda", f"experts.{name}", "--describe"] for name in SLEEPY]
    (applied,) = yaml.safe_load_all("\n".join(cluster.lines("applied")))
    assert sorted(applied["data"]) == [f"{name}.json" for name in SLEEPY]


def test_where_nobody_sleeps_nobody_is_described(cluster: Cluster) -> None:
    done = cluster.deploy("local")
    assert (done.returncode, cluster.lines("run")) == (0, ())


def test_without_an_answer_of_docker_podman_describes(cluster: Cluster) -> None:
    cluster.has("docker", BROKEN)
    cluster.has("podman", ENGINE)
    assert cluster.deploy("production").returncode == 0
    assert len(cluster.lines("run")) == len(SLEEPY)


def test_an_image_that_cannot_tell_of_itself_ends_it_before_anything_is_applied(cluster: Cluster) -> None:
    cluster.has("docker", '#!/bin/sh\n[ "$1" = ps ] && exit\necho no such image >&2\nexit 1\n')
    done = cluster.deploy("production")
    assert done.returncode != 0
    assert "no such image" in done.stderr
    assert not cluster.told()
    assert not (cluster.folder / "descriptions").exists()


def test_where_nothing_runs_images_that_is_said_before_anything_is_applied(cluster: Cluster, tmp_path: Path) -> None:
    cluster.has("docker", BROKEN)
    few = tmp_path / "few"
    few.mkdir()
    for program in ("sh", "cat", "grep", "mkdir", "rm"):
        (few / program).symlink_to(str(shutil.which(program)))
    done = cluster.deploy("production", path=str(few))
    assert done.returncode != 0
    assert "start Docker, or install podman" in done.stderr
    assert not cluster.told()


@pytest.mark.parametrize("target", ["render", "deploy"])
def test_an_overlay_that_is_not_there_is_said_with_those_that_are(target: str) -> None:
    done = made(target, "OVERLAY=nope")
    assert done.returncode != 0
    assert "no overlay nope; there are: " in done.stderr
    assert "production" in done.stderr


def test_an_image_that_is_not_there_is_said_with_those_that_are() -> None:
    done = made("images", "IMAGES=core expert-nope")
    assert done.returncode != 0
    assert "no image expert-nope; there are: core expert-lite" in done.stderr
