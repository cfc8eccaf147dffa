"""Key-value store for small state of services that must survive a restart, in the object store of the artifacts."""

from contextlib import suppress
from urllib.parse import quote, unquote

import obstore
from obstore.store import ObjectStore

from services.common.object_store import translate_errors


class KeyValueStore:
    """The entries of one namespace. Every method raises Unavailable if the object store does not answer.

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
