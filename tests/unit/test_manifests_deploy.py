"""Commands that `make deploy` and `make descriptions` run, recorded by fakes, and make's errors."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl")]

ROOT = Path(__file__).parents[2]

KUBECTL = """#!/bin/sh
echo "$*" >> {folder}/commands
"""


def run_make(*arguments: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
    command = [str(shutil.which("make")), *arguments]
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)


def test_deploy_applies_the_overlay_and_waits(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(folder=tmp_path), encoding="utf-8")
    program.chmod(0o755)
    done = run_make("deploy", "OVERLAY=production", path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    apply, wait = (tmp_path / "commands").read_text(encoding="utf-8").splitlines()
    assert apply == "apply --server-side --force-conflicts --kustomize k8s/overlays/production"
    assert wait.startswith("wait --namespace hugginggpt")


def test_description_of_an_own_image_is_written_to_a_file(tmp_path: Path) -> None:
    engine = tmp_path / "docker"
    engine.write_text('#!/bin/sh\necho "$*"\n', encoding="utf-8")
    engine.chmod(0o755)
    file, path = tmp_path / "colours.json", f"{tmp_path}:{os.environ['PATH']}"
    done = run_make("descriptions", "IMAGE=colours:1", "ARGS=experts.host /experts/colours", f"FILE={file}", path=path)
    assert done.returncode == 0, done.stderr
    assert file.read_text(encoding="utf-8").strip().endswith("colours:1 experts.host /experts/colours --describe")


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
