"""Fetches models from the Hub, or the mirror in HF_ENDPOINT, into Hugging Face's cache."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from tenacity import retry, retry_if_exception, stop_after_attempt, stop_after_delay, wait_fixed

from experts.host import load_context
from experts.torch_host.downloads import Download
from experts.torch_host.file_selection import has_weights, select_files
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

log = structlog.get_logger(__name__)

ATTEMPTS, PAUSE_SECONDS = 3, 1.0
"""Attempts and pause for a Hub that does not answer; its own client would retry for half a minute."""
ANSWER_SECONDS = 10.0
"""Timeout of one answer, and time after which no further attempt is made."""

_CONVERTER, _CONVERSION_TITLE = "SFconvertbot", "Adding `safetensors` variant of this model"

_CONVERSION_REF = "safetensors"
"""Name under which the cache stores the commit of a conversion, next to "main"."""

TOKEN = "HF_TOKEN"  # noqa: S105  # the name of the variable


def fetch(model_id: str, commit: str, variant: str) -> tuple[Path, str]:
    """Fetches missing files of a model; returns its folder in the cache, and its commit.

    Args:
        model_id: the repository.
        commit: empty selects that of the main branch or, offline, the one last seen there.
        variant: preferred variant of the weights.

    Raises:
        FailedPrecondition: LOAD_FAILED.
    """
    from huggingface_hub import snapshot_download

    api = _api()
    with _translate_errors(model_id):
        pinned, commit = bool(commit), _commit(api, model_id, commit)
        files = _file_sizes(api, model_id, commit)
        if files and not pinned and not has_weights(files):
            if converted := _conversion_commit(api, model_id):
                commit = converted
                _store_conversion(model_id, commit)
            files = _file_sizes(api, model_id, commit)
        names = select_files(files, variant) if files else None
        total = sum(files[name] for name in names or ())
        with Download(model_id, total) as download:
            folder = snapshot_download(
                model_id, revision=commit, allow_patterns=names, endpoint=api.endpoint, tqdm_class=download.progress_bar
            )
    return Path(folder), commit


def _commit(api: "HfApi", model_id: str, pinned: str) -> str:
    """Returns the commit to use; checks that the Hub answers if files must be fetched."""
    from huggingface_hub.constants import is_offline_mode

    is_unreachable = False
    if not is_offline_mode() and (not pinned or _tree(model_id, pinned) is None):
        load_context.current().progress(0.0, f"requesting the model from {_endpoint()}")
        log.info("requesting the model", model=model_id, at=_endpoint())
        is_unreachable = not _is_reachable(api, model_id)
    if is_unreachable and pinned:
        raise _unreachable_error(model_id)
    if pinned:
        return pinned
    if (is_unreachable or is_offline_mode()) and (cached := cached_commit(model_id)):
        return cached
    return str(api.resolve_revision(model_id, local_files_only=is_unreachable).resolved)


def _conversion_commit(api: "HfApi", model_id: str) -> str:
    """Returns the commit of the Hub converter's pull request with safetensors weights; empty if there is none.

    Only pull requests with the converter's account and title are considered.
    """
    pull_requests = api.get_repo_discussions(
        model_id, author=_CONVERTER, discussion_type="pull_request", discussion_status="open"
    )
    for pull_request in pull_requests:
        if pull_request.author == _CONVERTER and pull_request.title == _CONVERSION_TITLE and pull_request.git_reference:
            commit: str = api.resolve_revision(model_id, revision=pull_request.git_reference).resolved
            return commit
    return ""


def cached_commit(model_id: str) -> str:
    """Returns the cached commit of the main branch, or of its conversion, without network access; empty if none is."""
    if not find_spec("huggingface_hub"):
        return ""
    commits = (_read_ref(model_id, name) for name in ("main", _CONVERSION_REF))
    return next((commit for commit in commits if commit and _has_cached_weights(model_id, commit)), "")


def _has_cached_weights(model_id: str, commit: str) -> bool:
    folder = _cache_folder(model_id) / "snapshots" / commit
    return folder.is_dir() and has_weights(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def _read_ref(model_id: str, name: str) -> str:
    ref = _cache_folder(model_id) / "refs" / name
    return ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""


def _store_conversion(model_id: str, commit: str) -> None:
    """Stores the commit of a conversion, to find its files without network access."""
    ref = _cache_folder(model_id) / "refs" / _CONVERSION_REF
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit, encoding="utf-8")


def _cache_folder(model_id: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{model_id.replace('/', '--')}"


def _api() -> "HfApi":
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def _file_sizes(api: "HfApi", model_id: str, commit: str) -> dict[str, int]:
    """Returns the repository's files with their sizes, preferably from the cache; empty if offline."""
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.hf_api import RepoFile

    tree = _tree(model_id, commit)
    if tree is None:
        try:
            entries = api.list_repo_tree(model_id, recursive=True, revision=commit)
            tree = [entry for entry in entries if isinstance(entry, RepoFile)]
        except OfflineModeIsEnabled:
            return {}
    return {file.path: file.size for file in tree}


def _tree(model_id: str, commit: str) -> "list[RepoFile] | None":
    """Returns the repository's files from the cache; None if they are not cached."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        return get_cached_repo_tree(model_id, revision=commit)
    except CachedRepoTreeNotFoundError:
        return None


def _is_transport_error(error: BaseException) -> bool:
    import httpx2

    return isinstance(error, httpx2.TransportError)


def _is_reachable(api: "HfApi", model_id: str) -> bool:
    """Whether the Hub answers at all, even with an error; its client would retry for long, or wait without limit."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        _request_model_info(api, model_id)
    except HfHubHTTPError:
        return True
    except Exception as error:
        if not _is_transport_error(error):
            raise
        return False
    return True


@retry(
    retry=retry_if_exception(_is_transport_error),
    stop=stop_after_attempt(ATTEMPTS) | stop_after_delay(ANSWER_SECONDS),
    wait=wait_fixed(PAUSE_SECONDS),
    reraise=True,
)
def _request_model_info(api: "HfApi", model_id: str) -> None:
    api.model_info(model_id, timeout=ANSWER_SECONDS)


@contextmanager
def _translate_errors(model_id: str) -> Iterator[None]:
    """Translates errors of the Hub's client into FailedPrecondition with a remedy."""
    import httpx2
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
        RevisionResolutionError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise _gated_error(model_id) from error
    except RepositoryNotFoundError as error:
        raise _not_found_error(model_id) from error
    except RevisionNotFoundError as error:
        raise _load_error(f"{model_id} no longer has this commit", "correct the revision on its card") from error
    except HfHubHTTPError as error:
        raise _http_error(model_id, error.response.status_code) from error
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, RevisionResolutionError, httpx2.TransportError) as error:
        raise _unreachable_error(model_id) from error
    except OSError as error:
        raise cache_write_error(model_id, error) from error


def cache_write_error(model_id: str, error: OSError) -> FailedPrecondition:
    """Returns the error for a cache that cannot be written."""
    return _load_error(
        f"cannot write {model_id} to the cache: {error.strerror or type(error).__name__}",
        "free disk space or grant write access at HF_HOME",
    )


def _gated_error(model_id: str) -> FailedPrecondition:
    page = _page(model_id)
    if not _has_token():
        return _load_error(
            f"{model_id} is gated, and there is no token",
            f"accept its conditions at {page} and set {TOKEN} to a token of that account",
        )
    return _load_error(
        f"{model_id} is gated, and the account of the token has not been given access",
        f"accept its conditions at {page} with the account whose token {TOKEN} holds",
    )


def _not_found_error(model_id: str) -> FailedPrecondition:
    page = _page(model_id)
    if not _has_token():
        return _load_error(
            f"{model_id} is private or does not exist, and there is no token",
            f"look at {page}; if it is private, set {TOKEN} to a token that may read it",
        )
    return _load_error(
        f"{model_id} does not exist, or is private and the token may not read it",
        f"look at {page}, and give the token in {TOKEN} access to it",
    )


def _http_error(model_id: str, status: int) -> FailedPrecondition:
    if status == 401:  # noqa: PLR2004  # an HTTP status
        remedy = f"set {TOKEN} to a valid token, or unset it if {_page(model_id)} is open to all"
        return _load_error(f"{model_id}: the token is not valid", remedy)
    return _load_error(f"{model_id}: the Hub answered {status}", f"look at {_page(model_id)}, or try again later")


def _unreachable_error(model_id: str) -> FailedPrecondition:
    from huggingface_hub.constants import is_offline_mode

    reason = "HF_HUB_OFFLINE is set" if is_offline_mode() else f"{_endpoint()} cannot be reached"
    return _load_error(
        f"{model_id} is not on this machine, and {reason}",
        "fetch it with HF_HUB_OFFLINE=0 with network access (the expert's --prefetch; other tools may fetch pickles) "
        "and copy the cache, or set HF_ENDPOINT to a mirror or EXPERT_MODELS_URL to a folder that contains it",
    )


def _load_error(message: str, remedy: str) -> FailedPrecondition:
    return FailedPrecondition(message, remedy=remedy, reason="LOAD_FAILED")


def _has_token() -> bool:
    from huggingface_hub import get_token

    return bool(get_token())


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _page(model_id: str) -> str:
    return f"{_endpoint().rstrip('/')}/{model_id}"
