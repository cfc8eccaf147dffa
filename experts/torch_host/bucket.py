"""Models from a bucket of the operator's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from experts.torch_host.downloads import Download
from experts.torch_host.file_selection import METADATA, chosen, has_weights
from experts.torch_host.hub import unkept
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore


_PARTIAL = ".partial"
_ROUNDING_SECONDS = 0.001
"""By how much a time may differ after a file system has kept it."""


def fetched(model_id: str, url: str) -> Path | None:
    """The model's folder in the cache, filled from the bucket; nothing if the bucket does not have it.

    Offline the bucket is not asked: what is in the cache is taken, if it is whole.

    Raises:
        FailedPrecondition: LOAD_FAILED, the bucket cannot be read, or the cache cannot be written.
    """
    from huggingface_hub.constants import is_offline_mode

    folder = _cache() / model_id
    if is_offline_mode():
        return folder if _is_whole(folder) else None
    with _explained(model_id, url):
        return folder if _fill(folder, model_id, url) else None


def _is_whole(folder: Path) -> bool:
    """Whether weights, which come last, are there and nothing is half there."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return has_weights(names) and not any(name.endswith(_PARTIAL) for name in names)


def _fill(folder: Path, model_id: str, url: str) -> bool:
    """Fetches what is not there yet; whether there is anything in the bucket."""
    import obstore
    from obstore.store import from_url

    store = from_url(url)
    metas = [meta for page in obstore.list(store, f"{model_id}/") for meta in page]
    files = {meta["path"].removeprefix(f"{model_id}/"): meta for meta in metas}
    names = [*chosen(files), *({METADATA} & files.keys())]
    with Download(model_id, sum(files[name]["size"] for name in names)) as download:
        for name in names:
            _get(store, files[name], folder / name, download)
    return bool(files)


@contextmanager
def _explained(model_id: str, url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the store's own have no number
            raise unkept(model_id, error) from error
        raise FailedPrecondition(
            f"{model_id} could not be read from {url}: {type(error).__name__}",
            reason="LOAD_FAILED",
            remedy="look at EXPERT_MODELS_URL and the access keys (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, …)",
        ) from error


def _get(store: "ObjectStore", file: "ObjectMeta", path: Path, download: Download) -> None:
    """A file is renamed once it is whole; one of the same size and time is the same."""
    import obstore

    if _is_here(file, path):
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


def _is_here(file: "ObjectMeta", path: Path) -> bool:
    if not path.is_file():
        return False
    here = path.stat()
    apart = abs(here.st_mtime - file["last_modified"].timestamp())
    return here.st_size == file["size"] and apart < _ROUNDING_SECONDS


def _cache() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "bucket"
