import asyncio

from obstore.store import MemoryStore

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from services.common.errors import Unavailable
from services.common.object_store import KeyValueStore
from services.selector.catalog import ExpertCatalog
from services.selector.dormant_experts import STORE_KIND, DescriptionStore
from tests.fakes import card

DORMANT = DescribeResponse(expert="big one", models=[card("svd", "text-to-video")], scales_to_zero=True)


class ObservedStore(KeyValueStore):
    """A store that reports writes, and fails a given number of times."""

    def __init__(self, store: MemoryStore, failures: int = 0) -> None:
        super().__init__(store, STORE_KIND)
        self.failures = failures
        self.writes: asyncio.Queue[str] = asyncio.Queue()

    async def put(self, name: str, content: bytes) -> None:
        self._fail()
        await super().put(name, content)
        self.writes.put_nowait(name)

    async def all(self) -> dict[str, bytes]:
        self._fail()
        return await super().all()

    def _fail(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise Unavailable("the store is unavailable", remedy="wait")


def catalog_with(*replies: DescribeResponse) -> ExpertCatalog:
    catalog = ExpertCatalog(standard_tasks())
    for number, reply in enumerate(replies, start=1):
        catalog.add_address(f"host:{number}")
        catalog.record_reply(f"host:{number}", reply)
    return catalog


async def next_write(descriptions: ObservedStore) -> str:
    async with asyncio.timeout(5):
        return await descriptions.writes.get()


async def test_expert_that_scales_to_zero_is_restored_as_dormant() -> None:
    store = MemoryStore()
    descriptions = ObservedStore(store)
    async with DescriptionStore(descriptions, catalog_with(DORMANT)).running():
        assert await next_write(descriptions) == "big one"
    restarted = catalog_with()
    async with DescriptionStore(ObservedStore(store), restarted).running():
        assert restarted.view.tasks["text-to-video"].dormant


async def test_expert_that_does_not_scale_to_zero_is_not_restored() -> None:
    store = MemoryStore()
    descriptions = ObservedStore(store)
    running = DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")])
    async with DescriptionStore(descriptions, catalog_with(running)).running():
        assert await next_write(descriptions) == "lite"
    restarted = catalog_with()
    async with DescriptionStore(ObservedStore(store), restarted).running():
        assert not restarted.view.tasks


async def test_unchanged_description_is_not_written_again() -> None:
    descriptions = ObservedStore(MemoryStore())
    catalog = catalog_with(DORMANT)
    async with DescriptionStore(descriptions, catalog, write_pause=0).running():
        await next_write(descriptions)
        changed_load = DescribeResponse()
        changed_load.CopyFrom(DORMANT)
        changed_load.MergeFrom(DescribeResponse(revision="2", load=ExpertLoad(waiting=3)))
        catalog.record_reply("host:1", changed_load)
        catalog.add_address("host:2")
        catalog.record_reply("host:2", DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")]))
        assert await next_write(descriptions) == "lite"


async def test_unavailable_store_is_retried() -> None:
    store = MemoryStore()
    await KeyValueStore(store, STORE_KIND).put("big one", DORMANT.SerializeToString())
    descriptions = ObservedStore(store, failures=3)
    restarted = catalog_with(DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")]))
    async with DescriptionStore(descriptions, restarted, write_pause=0).running():
        assert await next_write(descriptions) == "lite"
        assert restarted.view.tasks["text-to-video"].dormant


async def test_corrupted_description_is_skipped() -> None:
    store = MemoryStore()
    await KeyValueStore(store, STORE_KIND).put("corrupted", b"\xff\xff\xff")
    await KeyValueStore(store, STORE_KIND).put("big one", DORMANT.SerializeToString())
    restarted = catalog_with()
    async with DescriptionStore(ObservedStore(store), restarted).running():
        assert list(restarted.view.tasks) == ["text-to-video"]


async def test_forgotten_expert_is_not_stored_until_it_answers_again() -> None:
    store = MemoryStore()
    descriptions, catalog = ObservedStore(store), catalog_with(DORMANT)
    description_store = DescriptionStore(descriptions, catalog, write_pause=0)
    async with description_store.running():
        await next_write(descriptions)
        catalog.drop_address("host:1")
        async with description_store.forgetting("big one"):
            catalog.forget("big one")
        async with description_store.forgetting("big one"):
            pass
        assert await KeyValueStore(store, STORE_KIND).all() == {}
        catalog.add_address("host:1")
        catalog.record_reply("host:1", DORMANT)
        assert await next_write(descriptions) == "big one"


async def until_empty(catalog: ExpertCatalog) -> None:
    async with asyncio.timeout(5):
        revision = ""
        while catalog.view.tasks:
            revision = await catalog.wait_for_revision(revision) or ""


async def test_expert_forgotten_by_one_replica_is_forgotten_by_all() -> None:
    store = MemoryStore()
    first, second = catalog_with(), catalog_with()
    first_store = DescriptionStore(ObservedStore(store), first, poll_seconds=0)
    async with DescriptionStore(descriptions := ObservedStore(store), catalog_with(DORMANT)).running():
        await next_write(descriptions)
    async with first_store.running(), DescriptionStore(ObservedStore(store), second, poll_seconds=0).running():
        assert second.view.tasks["text-to-video"].dormant
        async with first_store.forgetting("big one"):
            first.forget("big one")
        await until_empty(second)
    restarted = catalog_with()
    async with DescriptionStore(ObservedStore(store), restarted).running():
        assert not restarted.view.tasks


async def test_running_expert_deleted_from_the_store_is_written_when_it_changes() -> None:
    store, catalog = MemoryStore(), catalog_with(DORMANT)
    descriptions = ObservedStore(store)
    async with DescriptionStore(descriptions, catalog, write_pause=0, poll_seconds=0).running():
        await next_write(descriptions)
        await KeyValueStore(store, STORE_KIND).delete("big one")
        async with asyncio.timeout(5):
            while not await KeyValueStore(store, STORE_KIND).keys():
                catalog.record_reply("host:1", with_another_model(catalog))
        assert catalog.view.tasks


def with_another_model(catalog: ExpertCatalog) -> DescribeResponse:
    """The same expert with one more model."""
    (offer,) = catalog.view.replica_offers
    reply = DescribeResponse()
    reply.CopyFrom(offer.description.reply)
    reply.models.append(card(f"svd-{len(reply.models)}", "text-to-video"))
    return reply
