"""Commands that `make deploy` runs, recorded by fakes of kubectl and the container engine, and make's errors."""

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

SCALED_TO_ZERO = ("audio", "diffusion", "text", "video", "vision")

KUBECTL = """#!/bin/sh
echo "$1 $2" >> {folder}/commands
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


def run_make(*arguments: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
    command = [str(shutil.which("make")), *arguments]
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)


@dataclass(frozen=True)
class FakeCluster:
    """Records the commands of `make deploy`.

    Attributes:
        folder: first on PATH; holds the fake programs and their records.
    """

    folder: Path

    def deploy(self, overlay: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
        described = f"DESCRIPTIONS={self.folder / 'descriptions'}"
        return run_make("deploy", f"OVERLAY={overlay}", described, path=f"{self.folder}:{path}")

    def commands(self) -> Sequence[str]:
        """Subcommands of kubectl that call the API server, each with its first argument."""
        return [line for line in self.lines("commands") if line.split()[0] not in {"kustomize", "label"}]

    def lines(self, name: str) -> Sequence[str]:
        file = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else ()

    def install(self, program: str, text: str) -> None:
        path = self.folder / program
        path.write_text(text.format(folder=self.folder, kubectl=shutil.which("kubectl")), encoding="utf-8")
        path.chmod(0o755)


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    cluster = FakeCluster(tmp_path)
    cluster.install("kubectl", KUBECTL)
    cluster.install("docker", ENGINE)
    return cluster


def test_deploy_deletes_jobs_applies_everything_and_waits(cluster: FakeCluster) -> None:
    done = cluster.deploy("production")
    assert done.returncode == 0, done.stderr
    before, piped, after = cluster.commands()[:2], cluster.commands()[2:4], cluster.commands()[4:]
    assert before == ["delete jobs", "apply --server-side"]
    assert sorted(piped) == ["apply --server-side", "create configmap"]  # a pipe: either may be recorded first
    assert after == ["wait --namespace"]


def test_experts_scaled_to_zero_are_described_by_their_own_images(cluster: FakeCluster) -> None:
    cluster.deploy("production")
    described = [line.split()[-3:] for line in cluster.lines("run")]
    assert described == [
        [f"hugginggpt/expert-{name}:0.1.0-cuda", f"experts.{name}", "--describe"] for name in SCALED_TO_ZERO
    ]
    (applied,) = yaml.safe_load_all("\n".join(cluster.lines("applied")))
    assert sorted(applied["data"]) == [f"{name}.json" for name in SCALED_TO_ZERO]


def test_overlay_without_scale_to_zero_runs_no_image(cluster: FakeCluster) -> None:
    done = cluster.deploy("local")
    assert done.returncode == 0
    assert cluster.lines("run") == ()


def test_podman_describes_if_docker_does_not_answer(cluster: FakeCluster) -> None:
    cluster.install("docker", BROKEN)
    cluster.install("podman", ENGINE)
    assert cluster.deploy("production").returncode == 0
    assert len(cluster.lines("run")) == len(SCALED_TO_ZERO)


def test_deploy_stops_before_applying_if_an_image_fails(cluster: FakeCluster) -> None:
    cluster.install("docker", '#!/bin/sh\n[ "$1" = ps ] && exit\necho no such image >&2\nexit 1\n')
    done = cluster.deploy("production")
    assert done.returncode != 0
    assert "no such image" in done.stderr
    assert not cluster.commands()
    assert not (cluster.folder / "descriptions").exists()


def test_deploy_stops_before_applying_without_a_container_engine(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.install("docker", BROKEN)
    few = tmp_path / "few"
    few.mkdir()
    for program in ("sh", "cat", "grep", "mkdir", "rm"):
        (few / program).symlink_to(str(shutil.which(program)))
    done = cluster.deploy("production", path=str(few))
    assert done.returncode != 0
    assert "start Docker, or install podman" in done.stderr
    assert not cluster.commands()


@pytest.mark.parametrize("target", ["render", "deploy"])
def test_unknown_overlay_error_lists_the_overlays(target: str) -> None:
    done = run_make(target, "OVERLAY=nope")
    assert done.returncode != 0
    assert "no overlay nope; choose from: " in done.stderr
    assert "production" in done.stderr


def test_unknown_image_error_lists_the_images() -> None:
    done = run_make("images", "IMAGES=core expert-nope")
    assert done.returncode != 0
    assert "no image expert-nope; choose from: core expert-lite" in done.stderr
