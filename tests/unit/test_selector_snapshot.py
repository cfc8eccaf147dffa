import asyncio

from obstore.store import MemoryStore

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from services.common.errors import Unavailable
from services.common.kv_store import KeyValueStore
from services.selector.catalog import Catalog
from services.selector.snapshot import KIND, DescriptionStore
from tests.fakes import card

DORMANT = DescribeResponse(expert="big one", models=[card("svd", "text-to-video")], scales_to_zero=True)


class TellingNotes(KeyValueStore):
    """Says when something has been written; fails as often as it is told to."""

    def __init__(self, store: MemoryStore, failures: int = 0) -> None:
        super().__init__(store, KIND)
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
            raise Unavailable("the store is away", remedy="wait")


def catalog_with(*replies: DescribeResponse) -> Catalog:
    catalog = Catalog(standard_tasks())
    for number, reply in enumerate(replies, start=1):
        catalog.listed(f"host:{number}")
        catalog.record_reply(f"host:{number}", reply)
    return catalog


async def written(notes: TellingNotes) -> str:
    async with asyncio.timeout(5):
        return await notes.writes.get()


async def test_what_slept_sleeps_in_the_next_life() -> None:
    store = MemoryStore()
    notes = TellingNotes(store)
    async with DescriptionStore(notes, catalog_with(DORMANT)).running():
        assert await written(notes) == "big one"
    reborn = catalog_with()
    async with DescriptionStore(TellingNotes(store), reborn).running():
        assert reborn.view.tasks["text-to-video"].dormant


async def test_what_may_not_sleep_is_not_brought_back() -> None:
    store = MemoryStore()
    notes = TellingNotes(store)
    awake = DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")])
    async with DescriptionStore(notes, catalog_with(awake)).running():
        assert await written(notes) == "lite"
    reborn = catalog_with()
    async with DescriptionStore(TellingNotes(store), reborn).running():
        assert not reborn.view.tasks


async def test_what_has_not_changed_is_not_written_again() -> None:
    notes = TellingNotes(MemoryStore())
    catalog = catalog_with(DORMANT)
    async with DescriptionStore(notes, catalog, pause=0).running():
        await written(notes)
        busier = DescribeResponse()
        busier.CopyFrom(DORMANT)
        busier.MergeFrom(DescribeResponse(revision="2", load=ExpertLoad(waiting=3)))
        catalog.record_reply("host:1", busier)
        catalog.listed("host:2")
        catalog.record_reply("host:2", DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")]))
        assert await written(notes) == "lite"


async def test_a_store_that_is_away_is_asked_again() -> None:
    store = MemoryStore()
    await KeyValueStore(store, KIND).put("big one", DORMANT.SerializeToString())
    notes = TellingNotes(store, failures=3)
    reborn = catalog_with(DescribeResponse(expert="lite", models=[card("ocr", "image-to-text")]))
    async with DescriptionStore(notes, reborn, pause=0).running():
        assert await written(notes) == "lite"
        assert reborn.view.tasks["text-to-video"].dormant


async def test_what_cannot_be_read_is_passed_over() -> None:
    store = MemoryStore()
    await KeyValueStore(store, KIND).put("odd", b"\xff\xff\xff")
    await KeyValueStore(store, KIND).put("big one", DORMANT.SerializeToString())
    reborn = catalog_with()
    async with DescriptionStore(TellingNotes(store), reborn).running():
        assert list(reborn.view.tasks) == ["text-to-video"]


async def test_what_is_forgotten_stays_forgotten_until_it_comes_back() -> None:
    store = MemoryStore()
    notes, catalog = TellingNotes(store), catalog_with(DORMANT)
    memory = DescriptionStore(notes, catalog, pause=0)
    async with memory.running():
        await written(notes)
        catalog.drop_address("host:1")
        async with memory.forgetting("big one"):
            catalog.forget("big one")
        async with memory.forgetting("big one"):
            pass
        assert await KeyValueStore(store, KIND).all() == {}
        catalog.listed("host:1")
        catalog.record_reply("host:1", DORMANT)
        assert await written(notes) == "big one"


async def forgotten(catalog: Catalog) -> None:
    async with asyncio.timeout(5):
        revision = ""
        while catalog.view.tasks:
            revision = await catalog.wait_for_revision(revision) or ""


async def test_what_one_replica_is_told_to_forget_is_forgotten_by_all() -> None:
    store = MemoryStore()
    first, second = catalog_with(), catalog_with()
    told = DescriptionStore(TellingNotes(store), first, look=0)
    async with DescriptionStore(notes := TellingNotes(store), catalog_with(DORMANT)).running():
        await written(notes)
    async with told.running(), DescriptionStore(TellingNotes(store), second, look=0).running():
        assert second.view.tasks["text-to-video"].dormant
        async with told.forgetting("big one"):
            first.forget("big one")
        await forgotten(second)
    reborn = catalog_with()
    async with DescriptionStore(TellingNotes(store), reborn).running():
        assert not reborn.view.tasks


async def test_who_is_awake_is_not_forgotten_and_written_down_when_it_changes() -> None:
    store, catalog = MemoryStore(), catalog_with(DORMANT)
    notes = TellingNotes(store)
    async with DescriptionStore(notes, catalog, pause=0, look=0).running():
        await written(notes)
        await KeyValueStore(store, KIND).delete("big one")
        async with asyncio.timeout(5):
            while not await KeyValueStore(store, KIND).keys():
                catalog.record_reply("host:1", changed(catalog))
        assert catalog.view.tasks


def changed(catalog: Catalog) -> DescribeResponse:
    """The same expert, with one model more."""
    (seat,) = catalog.view.replica_offers
    reply = DescribeResponse()
    reply.CopyFrom(seat.description.reply)
    reply.models.append(card(f"svd-{len(reply.models)}", "text-to-video"))
    return reply
