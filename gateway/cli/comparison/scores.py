"""Score files, which routing tables can refer to: scores of models by task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gateway.cli.errors import Problem

FORMAT = "hugginggpt/scores/1"


def check(file: Path) -> None:
    """Raises Problem if scores cannot be added to the file."""
    _read(file)
    if not file.parent.is_dir():
        raise Problem(
            f"cannot write {file}: the folder {file.parent} does not exist", remedy="choose another --save-scores"
        )


def add(file: Path, task: str, scores: Mapping[str, float]) -> None:
    """Adds a task's scores to the file; scores of other tasks and models are kept."""
    tasks = _read(file)
    tasks[task] = {**(tasks.get(task) or {}), **{model: round(score, 4) for model, score in scores.items()}}
    try:
        file.write_text(yaml.safe_dump({"format": FORMAT, "tasks": tasks}, sort_keys=False), "utf-8")
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}", remedy="choose another --save-scores") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Problem(f"cannot read {file}: {type(error).__name__}", remedy="choose another --save-scores") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("tasks"), dict):
        raise Problem(f"{file} is not a score file", remedy="choose another --save-scores")
    return dict(content["tasks"])
