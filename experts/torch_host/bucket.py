"""Models from a bucket of the operator's."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from experts.torch_host.choosing import METADATA, chosen
from experts.torch_host.downloads import Download
from services.runtime.errors import FailedPrecondition

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore


_ROUNDING_SECONDS = 0.001
"""By how much a time may differ after a file system has kept it."""


def fetched(model_id: str, url: str) -> Path | None:
    """The model's folder in the cache, filled from the bucket; nothing if the bucket does not have it.

    Raises:
        FailedPrecondition: LOAD_FAILED, the bucket cannot be read.
    """
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    folder = _cache() / model_id
    try:
        store = from_url(url)
        metas = [meta for page in obstore.list(store, f"{model_id}/") for meta in page]
        files = {meta["path"].removeprefix(f"{model_id}/"): meta for meta in metas}
        names = [*chosen(files), *({METADATA} & files.keys())]
        with Download(model_id, sum(files[name]["size"] for name in names)) as download:
            for name in names:
                _get(store, files[name], folder / name, download)
    except BaseError as error:
        raise FailedPrecondition(
            f"{model_id} could not be read from {url}: {type(error).__name__}",
            reason="LOAD_FAILED",
            remedy="look at EXPERT_MODELS_URL and the access keys (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, …)",
        ) from error
    return folder if files else None


def _get(store: "ObjectStore", file: "ObjectMeta", path: Path, download: Download) -> None:
    """A file is renamed once it is whole; one of the same size and time is the same."""
    import obstore

    if _is_here(file, path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
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
