"""Sources of a model's files: the operator's folder or bucket, Hugging Face's cache, or the Hub."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from experts.torch_host import bucket, hub
from experts.torch_host.file_selection import METADATA, WEIGHTS, has_weights
from experts.torch_host.settings import SourceSettings
from services.common.errors import FailedPrecondition

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Snapshot:
    """The files of a model on this machine."""

    folder: Path
    commit: str
    """Empty if the source has no commits, such as a plain folder."""


def fetch_snapshot(model_id: str, revision: str = "", *, variant: str = "") -> Snapshot:
    """Returns the model's files, fetched if necessary: safetensors and data only, never code or pickles.

    Args:
        model_id: the repository.
        revision: as on the card; if it is not a commit but an engine's version, the main branch is used.
        variant: preferred variant of the weights, such as "fp16".

    Raises:
        FailedPrecondition: LOAD_FAILED, with what is missing: network, token, consent, safetensors, files.
    """
    commit = revision if _COMMIT.fullmatch(revision) else ""
    url = SourceSettings().models_url
    found = _operator_snapshot(model_id, url) if url else None
    if found is None:
        folder, commit = hub.fetch(model_id, commit, variant)
        found = Snapshot(folder, commit)
    _check(model_id, found.folder)
    return found


def local_commit(model_id: str) -> str:
    """Returns the commit of a model on this machine, without network access; empty if it is absent or has none."""
    url = SourceSettings().models_url
    root = _path(url) if url else None
    if root and (root / model_id).is_dir():
        return _commit_of(root / model_id)
    return hub.cached_commit(model_id)


def _operator_snapshot(model_id: str, url: str) -> Snapshot | None:
    """Returns the model from the operator's folder or bucket; None if it is not there."""
    root = _path(url)
    folder = root / model_id if root else bucket.fetch(model_id, url)
    return Snapshot(folder, _commit_of(folder)) if folder and folder.is_dir() else None


def _path(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path)).expanduser()
    return None


def _commit_of(folder: Path) -> str:
    metadata = folder / METADATA
    line = metadata.read_text(encoding="utf-8").partition("\n")[0].strip() if metadata.is_file() else ""
    return line if _COMMIT.fullmatch(line) else ""


def _check(model_id: str, folder: Path) -> None:
    """Checks that weights and all shards are present, for a better error than the loader's."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    if not has_weights(names):
        raise FailedPrecondition(
            f"{model_id} has no weights in safetensors, the only format that is loaded",
            reason="LOAD_FAILED",
            remedy="use a model that has them, or convert it: huggingface.co/docs/safetensors/convert-weights",
        )
    shards = {name for index in folder.glob(f"**/*{WEIGHTS}.index.json") for name in _shards(index)}
    present = {folder / name for name in names}
    if missing := sorted(path.relative_to(folder).as_posix() for path in shards - present):
        raise FailedPrecondition(
            f"{model_id} lacks {missing[0]}" + (f" and {len(missing) - 1} more files" if missing[1:] else ""),
            reason="LOAD_FAILED",
            remedy=f"fetch it again; the incomplete files are in {folder.name}",
        )


def _shards(index: Path) -> set[Path]:
    content = json.loads(index.read_text(encoding="utf-8"))
    return {index.parent / name for name in content["weight_map"].values()}
