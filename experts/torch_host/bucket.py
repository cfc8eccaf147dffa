"""Fetches models from the operator's bucket."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from experts.torch_host.downloads import Download
from experts.torch_host.file_selection import METADATA, has_weights, select_files
from experts.torch_host.hub import cache_write_error
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore


_PARTIAL = ".partial"
_ROUNDING_SECONDS = 0.001
"""Tolerance for file times, which file systems round."""


def fetch(model_id: str, url: str) -> Path | None:
    """Fetches a model from the bucket into the cache; returns its folder, or None if the bucket does not have it.

    Offline, a complete model in the cache is used without access to the bucket.

    Raises:
        FailedPrecondition: LOAD_FAILED, the bucket cannot be read, or the cache cannot be written.
    """
    from huggingface_hub.constants import is_offline_mode

    folder = _cache() / model_id
    if is_offline_mode():
        return folder if _is_complete(folder) else None
    with _translate_errors(model_id, url):
        return folder if _fill(folder, model_id, url) else None


def _is_complete(folder: Path) -> bool:
    """Whether weights, which are fetched last, are present and no file is partial."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return has_weights(names) and not any(name.endswith(_PARTIAL) for name in names)


def _fill(folder: Path, model_id: str, url: str) -> bool:
    """Fetches missing files; returns whether the bucket has the model."""
    import obstore
    from obstore.store import from_url

    store = from_url(url)
    metas = [meta for page in obstore.list(store, f"{model_id}/") for meta in page]
    files = {meta["path"].removeprefix(f"{model_id}/"): meta for meta in metas}
    names = [*select_files(files), *({METADATA} & files.keys())]
    with Download(model_id, sum(files[name]["size"] for name in names)) as download:
        for name in names:
            _get(store, files[name], folder / name, download)
    return bool(files)


@contextmanager
def _translate_errors(model_id: str, url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # errors of the object store have no number
            raise cache_write_error(model_id, error) from error
        raise FailedPrecondition(
            f"cannot read {model_id} from {url}: {type(error).__name__}",
            reason="LOAD_FAILED",
            remedy="check EXPERT_MODELS_URL and the access keys (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, …)",
        ) from error


def _get(store: "ObjectStore", file: "ObjectMeta", path: Path, download: Download) -> None:
    """Fetches one file unless a file of the same size and time exists; it is renamed once it is complete."""
    import obstore

    if _is_current(file, path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + _PARTIAL)
    with partial.open("wb") as content:
        for chunk in obstore.get(store, file["path"]).stream():
            content.write(chunk)
            download.add(len(chunk))
    modified = file["last_modified"].timestamp()
    os.utime(partial, (modified, modified))
    partial.replace(path)


def _is_current(file: "ObjectMeta", path: Path) -> bool:
    if not path.is_file():
        return False
    local = path.stat()
    time_difference = abs(local.st_mtime - file["last_modified"].timestamp())
    return local.st_size == file["size"] and time_difference < _ROUNDING_SECONDS


def _cache() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "bucket"
