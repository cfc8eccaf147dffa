"""Files of a comparison: the table of expected answers, and score files, which routing tables can refer to."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.client.attachments import Source
from gateway.client.errors import HuggingGPTError, InvalidRequest

COLUMNS = ("file", "label")


def labels(table: Path, files: Sequence[Source]) -> list[str | None]:
    """The expected answer of each file; None if the table lacks the file.

    Args:
        table: CSV with the columns file and label; a file is a path relative to the table, or a file name.
        files: files of the comparison.

    Raises:
        InvalidRequest: the table cannot be read, lacks a column, or lacks all files.
    """
    label_by_file = _read_labels(table)
    found = [_label_of(label_by_file, table.parent, file) for file in files]
    if all(label is None for label in found):
        raise _invalid(f"{table} has none of the files", "check its column file")
    return found


def _read_labels(table: Path) -> Mapping[str, str]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                columns = ", ".join(reader.fieldnames or ()) or "none"
                raise _invalid(f"{table} has no column {missing[0]}", f"its columns are: {columns}")
            label_by_file: dict[str, str] = {}
            for row in reader:
                if row["file"] in label_by_file:
                    raise _invalid(
                        f"line {reader.line_num} of {table} repeats {row['file']}", "remove one of the lines"
                    )
                label_by_file[row["file"]] = row["label"] or ""
            return label_by_file
    except OSError as error:
        raise _invalid(f"cannot read {table}: {error.strerror}", "check --labels") from error
    except UnicodeDecodeError as error:
        raise _invalid(f"{table} is not UTF-8", "save it as UTF-8") from error
    except csv.Error as error:
        raise _invalid(f"{table} is not a valid table: {error}", "check its quotes") from error


def _label_of(label_by_file: Mapping[str, str], folder: Path, file: Source) -> str | None:
    if isinstance(file, Path):
        path = file.resolve()
        by_path = {(folder / name).resolve(): label for name, label in label_by_file.items()}
        return label_by_file.get(str(file), by_path.get(path, label_by_file.get(file.name)))
    return label_by_file.get(str(file))


def _invalid(what: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(what, code="LABELS", remedy=remedy)


FORMAT = "hugginggpt/scores/1"


def check_score_file(file: Path) -> None:
    """Raises HuggingGPTError if scores cannot be added to the file."""
    _read_scores(file)
    if not file.parent.is_dir():
        raise _unwritable(f"cannot write {file}: the folder {file.parent} does not exist")


def add_scores(file: Path, task: str, scores: Mapping[str, float]) -> None:
    """Adds a task's scores to the file; scores of other tasks and models are kept."""
    tasks = _read_scores(file)
    tasks[task] = {**(tasks.get(task) or {}), **{model: round(score, 4) for model, score in scores.items()}}
    try:
        file.write_text(yaml.safe_dump({"format": FORMAT, "tasks": tasks}, sort_keys=False), "utf-8")
    except OSError as error:
        raise _unwritable(f"cannot write {file}: {error.strerror}") from error


def _read_scores(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unwritable(f"cannot read {file}: {type(error).__name__}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("tasks"), dict):
        raise _unwritable(f"{file} is not a score file")
    return dict(content["tasks"])


def _unwritable(what: str) -> HuggingGPTError:
    return HuggingGPTError(what, code="SCORES", remedy="choose another --save-scores")
