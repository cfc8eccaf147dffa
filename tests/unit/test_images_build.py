"""`make images` builds the image for bulk jobs from the experts that it is given, and only if it is named; its lock."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_commands(*settings: str, target: str = "images") -> str:
    """The commands that make would run to build images, or for another target."""
    command = [str(shutil.which("make")), "--dry-run", "--no-print-directory", target, "ENGINE=docker", *settings]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def test_bulk_image_has_several_experts_on_one_lock() -> None:
    command = build_commands("IMAGES=bulk")
    assert '--build-arg EXPERTS="bulk lite text vision audio" --build-arg LOCK=bulk' in command
    assert "--build-arg TORCH=cpu" in command
    assert '--build-arg LICENSES="Apache-2.0 AND GPL-2.0-or-later AND GPL-3.0-or-later"' in command


def test_bulk_image_of_experts_without_torch_has_no_torch_layer() -> None:
    command = build_commands("IMAGES=bulk", "BULK_EXPERTS=remote served")
    assert '--build-arg EXPERTS="bulk remote served"' in command
    assert "--build-arg TORCH=none" in command
    assert '--build-arg LICENSES="Apache-2.0"' in command


def test_image_of_one_expert_has_its_own_lock() -> None:
    command = build_commands("IMAGES=expert-video", "TORCH=cuda")
    assert '--build-arg EXPERTS="video" --build-arg LOCK=expert-video --build-arg TORCH=cuda' in command
    assert '--build-arg LICENSES="Apache-2.0 AND GPL-2.0-or-later"' in command
    assert "--tag hugginggpt/expert-video:" in command


def test_bulk_image_is_built_only_by_its_name() -> None:
    assert "hugginggpt/bulk:" not in build_commands()


def test_locks_have_only_packages_with_wheels() -> None:
    (command,) = (line for line in build_commands(target="lock-vision").splitlines() if "pip compile" in line)
    assert "--only-binary :all:" in command


def test_bulk_lock_is_made_for_all_its_experts_together() -> None:
    *_, command = build_commands("BULK_EXPERTS=text audio", target="lock-bulk").splitlines()
    assert "--extra text --extra audio --extra bulk-ray" in command
    assert command.endswith("--output-file docker/bulk.lock pyproject.toml")
