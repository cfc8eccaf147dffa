"""Removal of an expert from the catalogue, from the address files and from the store of descriptions."""

from collections.abc import Collection
from contextlib import AsyncExitStack, suppress

from services.common.errors import FailedPrecondition, NotFound
from services.selector.catalog import Catalog
from services.selector.discovery import Discovery
from services.selector.snapshot import Memory


class Removal:
    """Forgets experts by name, and single addresses.

    Args:
        catalog: what is offered.
        discovery: where addresses are listed.
        memory: descriptions of experts in the object store.
    """

    def __init__(self, catalog: Catalog, discovery: Discovery, memory: Memory) -> None:
        self._catalog = catalog
        self._discovery = discovery
        self._memory = memory

    async def forget(self, name: str) -> None:
        """Removes an expert, or one of its addresses. On return its tasks are no longer in the catalogue.

        An expert is also forgotten if its only address is removed.

        Args:
            name: of the expert, as it describes itself; or host:port.

        Raises:
            NotFound: EXPERT, neither is known.
            FailedPrecondition: AWAKE, it answers at an address of the settings; FORETOLD, the operator has described
                it; LISTED, its address cannot be taken out of where it is listed.
            Unavailable: the object store does not answer.
        """
        addresses = await self._discovery.addresses_of(name)
        is_expert = self._catalog.knows(name)
        if is_expert:
            self._catalog.check_described_by_experts_alone(name)
        elif not addresses:
            self._catalog.check_forgettable(name)  # raises NotFound
        self._discovery.check_removable(addresses)
        forgotten = {name} if is_expert else self._catalog.only_at(addresses)
        async with AsyncExitStack() as stack:
            for expert in forgotten:
                await stack.enter_async_context(self._memory.forgetting(expert))
            await self._discovery.remove(addresses)
            for expert in forgotten:
                with suppress(NotFound):  # it went with its addresses
                    self._catalog.forget(expert)
            if not is_expert:
                self._unlist(addresses)

    def _unlist(self, addresses: Collection[str]) -> None:
        for address in addresses:
            self._discovery.unlist(address)
            if source := self._discovery.source_of(address):
                remedy = "take it out of there, or stop what answers to that name"
                raise FailedPrecondition(f"{address} is listed by {source}", reason="LISTED", remedy=remedy)
