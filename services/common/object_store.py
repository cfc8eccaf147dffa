"""Object stores: opening one by URL, errors without locations and keys, and a key-value store for small state."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, GenericError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, ObjectStore, from_url

from services.common.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:  # obstore defines them for type checkers only
    from obstore.store import ClientConfig, RetryConfig

CONNECT_TIMEOUT = timedelta(seconds=5)
REQUEST_TIMEOUT = timedelta(seconds=30)
"""For one request, which carries at most one part of an object."""

_RETRIES: "RetryConfig" = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_NO_BUCKET = "NoSuchBucket"
_DENIED = re.compile(r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken|40[13] )")
_TIMED_OUT = re.compile(r"timed out|timeout|TimedOut")
_NO_CREDENTIALS = re.compile(r"/latest/(api/token|meta-data/iam/)|//169\.254\.170\.2/|Failed to read \w* ?token file")
"""Metadata services and files that the client tries when no credentials are set."""
_CHECK_ACCESS = "check ARTIFACTS_URL and the AWS_ variables that give access to it"


def open_store(url: str) -> tuple[ObjectStore, Path | None]:
    """Opens the store at a URL; returns it with its folder, or None if it is remote.

    Args:
        url: file:///folder, which is created if absent, or s3://bucket/prefix with AWS_ environment variables.

    Raises:
        Unavailable: the folder cannot be created or written.
        InvalidRequest: the URL is not supported.
    """
    if url.startswith("file://"):
        folder = Path(unquote(urlsplit(url).path))
        return _open_folder(folder), folder
    try:
        return connect(url), None
    except (BaseError, ValueError) as error:
        cause = str(error).partition("\n")[0]
        remedy = "give ARTIFACTS_URL as file:///folder or s3://bucket/prefix, and the AWS_ variables that give access"
        raise InvalidRequest(f"cannot open the artifact store: {cause}", remedy=remedy) from error


def connect(url: str) -> ObjectStore:
    """Returns a client of a remote store.

    Args:
        url: such as s3://bucket/prefix, with AWS_ environment variables.

    Raises:
        BaseError, ValueError: the URL is not supported, or a variable is invalid.
    """
    if urlsplit(url).scheme == "s3":
        return from_url(url, client_options=_client_options(), retry_config=_RETRIES)
    return from_url(url)


@contextmanager
def translate_errors(missing: Callable[[], Exception] | None = None) -> Iterator[None]:
    """Turns errors of the store within the block into a ServiceError.

    Args:
        missing: creates the exception for an object that does not exist.

    Raises:
        Unavailable: the store does not answer, or denies access.
    """
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        if missing is None or _NO_BUCKET in str(error):
            raise to_unavailable(error) from error
        raise missing() from error
    except (BaseError, OSError) as error:
        raise to_unavailable(error) from error


def to_unavailable(error: Exception) -> Unavailable:
    """The Unavailable error for an error of the store."""
    if _NO_BUCKET in str(error):
        return Unavailable("the artifact store's bucket does not exist", remedy="make it, or check ARTIFACTS_URL")
    if _NO_CREDENTIALS.search(str(error)):
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and check the other AWS_ variables and ARTIFACTS_URL"
        return Unavailable("no credentials for the artifact store are set", remedy=remedy)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _is_denied(error):
        return Unavailable("the artifact store denies access to this server", remedy=_CHECK_ACCESS)
    return Unavailable(
        f"the artifact store does not answer: {cause_of(error)}",
        remedy="check ARTIFACTS_URL, its permissions and the free space",
    )


class KeyValueStore:
    """Small state of a service that must survive a restart: the entries of one namespace.

    Every method raises Unavailable if the object store does not answer.

    Object keys start with an underscore, which no tenant's name does.

    Args:
        store: the object store.
        namespace: separates the entries of different services.
    """

    def __init__(self, store: ObjectStore, namespace: str) -> None:
        self._store = store
        self._prefix = f"_{namespace}/"

    async def put(self, key: str, content: bytes) -> None:
        """Writes an entry, replacing one with the same key."""
        with translate_errors():
            await obstore.put_async(self._store, self._path(key), content)

    async def all(self) -> dict[str, bytes]:
        """All entries by key."""
        keys = await self.keys()
        with translate_errors():
            return {key: await self._read(self._path(key)) for key in sorted(keys)}

    async def keys(self) -> frozenset[str]:
        """The keys of all entries."""
        with translate_errors():
            listed = await obstore.list(self._store, prefix=self._prefix).collect_async()
        return frozenset(unquote(entry["path"].removeprefix(self._prefix)) for entry in listed)

    async def delete(self, key: str) -> None:
        """Removes an entry, if it exists."""
        with translate_errors(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, self._path(key))

    async def _read(self, path: str) -> bytes:
        return bytes(await (await obstore.get_async(self._store, path)).bytes_async())

    def _path(self, key: str) -> str:
        return self._prefix + quote(key, safe="")


def _open_folder(folder: Path) -> LocalStore:
    remedy = "give ARTIFACTS_URL a folder this user may write"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable(f"cannot use {folder} for artifacts: {error.strerror}", remedy=remedy) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Unavailable(f"cannot write artifacts into {folder}", remedy=remedy)
    return LocalStore(folder)


def _client_options() -> "ClientConfig":
    """Timeouts; with any option given, obstore no longer reads AWS_ALLOW_HTTP itself."""
    allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    return {"connect_timeout": CONNECT_TIMEOUT, "timeout": REQUEST_TIMEOUT, "allow_http": allow_http}


def _is_denied(error: Exception) -> bool:
    return isinstance(error, GenericError) and _DENIED.search(str(error)) is not None


def cause_of(error: Exception) -> str:
    """The cause of a store's error in a few words, without locations and keys."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    found = _OS_ERROR.search(str(error))
    if found:
        return os.strerror(int(found[1]))
    return "the request timed out" if _TIMED_OUT.search(str(error)) else type(error).__name__
