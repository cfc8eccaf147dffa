"""Models from a bucket of the operator's."""

from pathlib import Path
from typing import TYPE_CHECKING

from experts.torch_host.choosing import chosen
from experts.torch_host.downloads import Download
from services.runtime.errors import FailedPrecondition

if TYPE_CHECKING:
    from obstore.store import ObjectStore


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
        sizes = {meta["path"].removeprefix(f"{model_id}/"): meta["size"] for meta in metas}
        with Download(model_id, sum(sizes[name] for name in chosen(sizes))) as download:
            for name in chosen(sizes):
                _get(store, f"{model_id}/{name}", folder / name, sizes[name], download)
    except BaseError as error:
        raise FailedPrecondition(
            f"{model_id} could not be read from {url}: {type(error).__name__}",
            reason="LOAD_FAILED",
            remedy="look at EXPERT_MODELS_URL and the access keys (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, …)",
        ) from error
    return folder if sizes else None


def _get(store: "ObjectStore", key: str, path: Path, size: int, download: Download) -> None:
    """A file is renamed once it is whole; one of the same size is taken to be the same."""
    import obstore

    if path.is_file() and path.stat().st_size == size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        for chunk in obstore.get(store, key).stream():
            file.write(chunk)
            download.add(len(chunk))
    partial.replace(path)


def _cache() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "bucket"
