"""Files of a job: reads inputs at local paths and object URLs, and writes results into a folder or object store."""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore

from services.common.errors import InvalidRequest, NotFound, ServiceError, Unavailable
from services.common.media_types import suffix
from services.common.object_store import cause_of, connect

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""Schemes of object URLs. HTTP is not among them: a table must not make this machine call arbitrary addresses."""

MEDIA_FOLDER = "files"

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


def is_remote(url: str) -> bool:
    """Whether a path or URL names an object of a remote store.

    Raises:
        InvalidRequest: its scheme is not supported.
    """
    found = _SCHEME.match(url)
    if not found or found[1] == "file":
        return False
    if found[1] not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(
            f"cannot read {url}: {found[1]}:// is not supported", remedy=f"give a local path, or a URL with {known}"
        )
    return True


def local_path(url: str) -> Path:
    """Returns the path of a local file, given as a path or as file:// URL."""
    return Path(url.removeprefix("file://"))


def absolute(url: str) -> str:
    """Returns a path or URL that means the same in another working directory."""
    return url if is_remote(url) else os.path.abspath(local_path(url))  # noqa: PTH100  # keeps symbolic links


def is_folder(url: str) -> bool:
    """Whether a local folder exists; true for each object URL, since stores have no folders."""
    return is_remote(url) or local_path(url).is_dir()


def split_object_url(url: str) -> tuple[str, str]:
    """Splits an object URL into that of its bucket and the key."""
    parts = urlsplit(url, allow_fragments=False)
    key = url.partition("://")[2].partition("/")[2]
    return f"{parts.scheme}://{parts.netloc}", key


@cache
def open_bucket(url: str) -> ObjectStore:
    """Returns the store of a bucket.

    Raises:
        InvalidRequest: a variable that gives access to it is invalid.
    """
    try:
        return connect(url)
    except (BaseError, ValueError) as error:
        cause = str(error).partition("\n")[0]
        raise InvalidRequest(f"cannot open {url}: {cause}", remedy="check the variables that give access") from error


def file_name(url: str) -> str:
    """Returns the last part of a path or URL."""
    return PurePosixPath(url).name


def read_file(url: str) -> bytes:
    """Reads a file.

    Raises:
        NotFound: FILE, it does not exist.
        Unavailable: it cannot be read.
    """
    if is_remote(url):
        bucket, key = split_object_url(url)
        with object_errors(url, "read"):
            return bytes(obstore.get(open_bucket(bucket), key).bytes())
    try:
        return local_path(url).read_bytes()
    except FileNotFoundError:
        raise _missing(url) from None
    except OSError as error:
        raise InvalidRequest(
            f"cannot read {url}: {error.strerror}", reason="FILE", remedy="check the file and its permissions"
        ) from error


@contextmanager
def object_errors(url: str, verb: str) -> Iterator[None]:
    """Turns errors of a store within the block into a NotFound (FILE) or Unavailable that names the file.

    Args:
        url: of the file or folder.
        verb: what is done with it, such as "read".
    """
    try:
        yield
    except (NotFoundError, FileNotFoundError):
        raise _missing(url) from None
    except (BaseError, OSError) as error:
        raise Unavailable(
            f"cannot {verb} {url}: {cause_of(error)}", remedy="check the variables that give access, and the store"
        ) from error


def _missing(url: str) -> ServiceError:
    return NotFound(f"{url} does not exist", reason="FILE", remedy="check the path; the file may have been moved")


class _ObjectReader(io.RawIOBase):
    """An object as a file, of which only the parts are fetched that are read."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._reader = obstore.open_reader(store, key)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        content = memoryview(self._reader.read(len(memoryview(buffer))))
        memoryview(buffer)[: len(content)] = content
        return len(content)


def open_object(url: str) -> io.RawIOBase:
    """Opens an object for reading and seeking.

    Raises:
        NotFound: FILE, it does not exist.
        Unavailable: it cannot be read.
    """
    bucket, key = split_object_url(url)
    with object_errors(url, "read"):
        return _ObjectReader(open_bucket(bucket), key)


class OutputFolder:
    """Folder of results, local or at an object URL. Each file is written completely or not at all.

    Args:
        url: path or object URL of the folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if is_remote(url):
            bucket, prefix = split_object_url(self.url)
            self._store, self._prefix = open_bucket(bucket), prefix
        else:
            path = local_path(self.url)
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidRequest(
                    f"cannot write to {url}: {error.strerror}", remedy="choose another --to"
                ) from error
            self._store, self._prefix = LocalStore(path.resolve()), ""

    def names(self) -> list[str]:
        """Names of the files directly in the folder, sorted."""
        with object_errors(self.url, "list"):
            listed = obstore.list_with_delimiter(self._store, prefix=self._prefix or None)
        return sorted(PurePosixPath(each["path"]).name for each in listed["objects"])

    def open(self, name: str) -> io.RawIOBase:
        """Opens a file for reading and seeking."""
        with object_errors(f"{self.url}/{name}", "read"):
            return _ObjectReader(self._store, self._key(name))

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, or replaces it.

        Raises:
            Unavailable: it cannot be written.
        """
        with object_errors(f"{self.url}/{name}", "write"):
            obstore.put(self._store, self._key(name), content)

    def write_chunks(self, name: str, chunks: Iterable[bytes]) -> None:
        """Writes a file of any size, or replaces it.

        Raises:
            Unavailable: it cannot be written.
        """
        with object_errors(f"{self.url}/{name}", "write"):
            writer = obstore.open_writer(self._store, self._key(name))
            for chunk in chunks:
                writer.write(chunk)
            writer.close()  # only now does the file exist

    def delete(self, name: str) -> None:
        with object_errors(f"{self.url}/{name}", "delete"):
            obstore.delete(self._store, self._key(name))

    def write_media(self, content: bytes, media_type: str) -> str:
        """Writes a file named by its digest and returns its path in the folder."""
        digest = hashlib.sha256(content).hexdigest()
        name = f"{MEDIA_FOLDER}/{digest[:2]}/{digest}.{suffix(media_type) or 'bin'}"
        self.write(name, content)
        return name

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name
