"""Leases of batches for the lease manager: chooses those to claim, within the limits of this process."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import structlog

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED
from services.common.errors import CorruptData
from services.orchestrator.journal.batches import CHANGED, BatchStore, Claimed
from services.orchestrator.journal.leases import Lease
from services.orchestrator.notifier import ChangeNotifier

log = structlog.get_logger(__name__)

MAX_ACTIVE = 16
"""Batches that start items in this process; others wait, or run in another. The first one of a tenant never waits."""

MAX_CLAIMED = 128
"""Claimed batches, including first ones of tenants and those that wait for a task or model that is not offered."""

MAX_CLAIMED_PER_TENANT = MAX_CLAIMED // 2
"""Claimed batches of one tenant."""


class BatchLeaseSource:
    """The leases of batches, for the lease manager.

    Args:
        store: of batches and their leases.
        notifier: notifies of changes in the journal.
        blocked: IDs of batches that start no items because a task or model is not offered.
    """

    kind = "batch"

    def __init__(self, store: BatchStore, notifier: ChangeNotifier, blocked: Collection[str]) -> None:
        self._store = store
        self._notifier = notifier
        self._blocked = blocked

    async def claim(self, active: Mapping[str, Claimed]) -> list[Claimed]:
        """Claims batches without an owner, up to the limits."""
        free = MAX_CLAIMED - len(active)
        if free <= 0 or not (chosen := self._choose(await self._store.due(free, list(active)), active)):
            return []
        claimed = await self._store.claim(chosen)
        for each in claimed:
            log.info("batch claimed", batch_id=each.id, fence=each.fence)
        return claimed

    async def load(self, claimed: Claimed) -> Claimed:
        """Checks that a claimed batch was decoded.

        Raises:
            CorruptData: its caller, spec or pipeline cannot be decoded.
        """
        if not claimed.batch.is_readable:
            raise CorruptData(f"the stored data of batch {claimed.id} cannot be decoded")
        return claimed

    async def renew(self, active: Collection[str]) -> Mapping[str, int]:
        """Renews leases; returns the fencing tokens of the batches that this process still owns."""
        return await self._store.renew(active) if active else {}

    async def release(self) -> None:
        """Releases all batches of this process; items' runs are released with the other runs."""
        await self._store.release()

    async def fail(self, lease: Lease, failure: Failure) -> None:
        """Ends a batch that cannot be continued as FAILED; active items run to their ends."""
        await self._store.end(lease, RUN_STATE_FAILED, failure)

    async def changes(self, active: Mapping[str, Claimed]) -> AsyncIterator[None]:  # noqa: ARG002  # LeaseSource's
        """Yields when batches may have no owner."""
        with self._notifier.subscribed(CHANGED) as changed:
            while True:
                await changed.wait()
                changed.clear()
                yield

    def released(self, held: Claimed) -> None:  # noqa: ARG002  # LeaseSource's
        """Announces that another batch can be claimed."""
        self._notifier.notify((CHANGED,))

    def use_trace(self, held: Claimed) -> AbstractContextManager[None]:  # noqa: ARG002  # LeaseSource's
        """Does nothing: a batch has no trace of its own."""
        return nullcontext()

    def _choose(self, due: Iterable[tuple[str, str]], held: Mapping[str, Claimed]) -> list[str]:
        """The batches to claim, of batches with their tenants."""
        claimed = Counter(each.batch.tenant for each in held.values())
        active = Counter(each.batch.tenant for id_, each in held.items() if id_ not in self._blocked)
        chosen = []
        for batch_id, tenant in sorted(due, key=lambda each: active[each[1]]):
            if claimed[tenant] < MAX_CLAIMED_PER_TENANT and (active.total() < MAX_ACTIVE or not active[tenant]):
                claimed[tenant] += 1
                active[tenant] += 1
                chosen.append(batch_id)
        return chosen
