"""Where artifacts may be: a local folder, or an object store that AWS_ variables give access to."""

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from services.common.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:  # the library has them for type checkers alone
    from obstore.store import ClientConfig, RetryConfig

CONNECT = timedelta(seconds=5)
REQUEST = timedelta(seconds=30)
"""For one request, of which none carries more than a part."""

_RETRIES: "RetryConfig" = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


def opened(url: str) -> tuple[ObjectStore, Path | None]:
    """The store at a URL, and its folder if it has one.

    Raises:
        Unavailable: the folder cannot be made or written.
        InvalidRequest: the URL is of no known kind.
    """
    if url.startswith("file://"):
        folder = Path(unquote(urlsplit(url).path))
        return _local(folder), folder
    try:
        if urlsplit(url).scheme == "s3":
            return from_url(url, client_options=_client(), retry_config=_RETRIES), None
        return from_url(url), None
    except (BaseError, ValueError) as error:
        cause = str(error).partition("\n")[0]
        remedy = "give ARTIFACTS_URL as file:///folder or s3://bucket/prefix, and the AWS_ variables that give access"
        raise InvalidRequest(f"cannot open the artifact store: {cause}", remedy=remedy) from error


def _local(folder: Path) -> LocalStore:
    remedy = "give ARTIFACTS_URL a folder this user may write"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable(f"cannot use {folder} for artifacts: {error.strerror}", remedy=remedy) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Unavailable(f"cannot write artifacts into {folder}", remedy=remedy)
    return LocalStore(folder)


def _client() -> "ClientConfig":
    """How requests are made; given any option, obstore no longer reads this variable itself."""
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    return {"connect_timeout": CONNECT, "timeout": REQUEST, "allow_http": plain}
