"""Removes experts from the catalogue, the address files and the store of descriptions."""

from collections.abc import Collection
from contextlib import AsyncExitStack, suppress

from services.common.errors import FailedPrecondition, NotFound
from services.selector.catalog import ExpertCatalog
from services.selector.description_store import DescriptionStore
from services.selector.discovery import Discovery


class Removal:
    """Removes experts by name, and single addresses.

    Args:
        catalog: of experts.
        discovery: polls the addresses.
        memory: stored descriptions of experts.
    """

    def __init__(self, catalog: ExpertCatalog, discovery: Discovery, memory: DescriptionStore) -> None:
        self._catalog = catalog
        self._discovery = discovery
        self._memory = memory

    async def forget(self, name: str) -> None:
        """Removes an expert, or one of its addresses. On return its tasks are no longer in the catalogue.

        An expert is also removed with its only address.

        Args:
            name: of the expert, as in its description; or host:port.

        Raises:
            NotFound: EXPERT, neither is known.
            FailedPrecondition: EXPERT_RUNNING, it answers at an address of the settings; EXPERT_PRECONFIGURED, a file
                of the operator describes it; LISTED, its address cannot be removed from its source.
            Unavailable: the object store is unavailable.
        """
        addresses = await self._discovery.addresses_of(name)
        is_expert = self._catalog.knows(name)
        if is_expert:
            self._catalog.check_not_preconfigured(name)
        elif not addresses:
            self._catalog.check_forgettable(name)  # raises NotFound
        self._discovery.check_removable(addresses)
        forgotten = {name} if is_expert else self._catalog.experts_only_at(addresses)
        async with AsyncExitStack() as stack:
            for expert in forgotten:
                await stack.enter_async_context(self._memory.forgetting(expert))
            await self._discovery.remove(addresses)
            for expert in forgotten:
                with suppress(NotFound):  # it was removed with its addresses
                    self._catalog.forget(expert)
            if not is_expert:
                self._unlist(addresses)

    def _unlist(self, addresses: Collection[str]) -> None:
        for address in addresses:
            self._discovery.unlist(address)
            if source := self._discovery.source_of(address):
                remedy = "remove it from there, or stop the server behind that name"
                raise FailedPrecondition(f"{address} is listed by {source}", reason="LISTED", remedy=remedy)
