"""Notes: small named bytes that a service keeps for its next life, in the object store beside the artifacts."""

from contextlib import suppress
from urllib.parse import quote, unquote

import obstore
from obstore.store import ObjectStore

from services.common.store_errors import answering


class Notes:
    """The notes of one kind. Every method raises Unavailable if the store does not answer.

    Their keys begin with an underscore, as no tenant's do.
    """

    def __init__(self, store: ObjectStore, kind: str) -> None:
        self._store = store
        self._prefix = f"_{kind}/"

    async def put(self, name: str, content: bytes) -> None:
        """Keeps a note in place of what had that name."""
        with answering():
            await obstore.put_async(self._store, self._key(name), content)

    async def all(self) -> dict[str, bytes]:
        """Every note, by name."""
        names = await self.names()
        with answering():
            return {name: await self._read(self._key(name)) for name in sorted(names)}

    async def names(self) -> frozenset[str]:
        """Of all notes."""
        with answering():
            listed = await obstore.list(self._store, prefix=self._prefix).collect_async()
        return frozenset(unquote(entry["path"].removeprefix(self._prefix)) for entry in listed)

    async def drop(self, name: str) -> None:
        """Removes a note, if it is there."""
        with answering(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, self._key(name))

    async def _read(self, key: str) -> bytes:
        return bytes(await (await obstore.get_async(self._store, key)).bytes_async())

    def _key(self, name: str) -> str:
        return self._prefix + quote(name, safe="")
