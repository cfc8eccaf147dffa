"""How many items of a batch are read at a time."""

from pathlib import Path

import pytest

from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Task
from services.common.database import Database
from services.orchestrator.journal.batch_rows import NewBatch
from tests.unit.test_orchestrator_batch_retention import CALLER, Batched

KIB = 1024


@pytest.fixture
async def batch_journal(database: Database, tmp_path: Path) -> Batched:
    return Batched(database, tmp_path / "artifacts")


def _item(size: int) -> NewItem:
    return NewItem(name="note", inputs=[NamedValue(name="note", value=Value(text="x" * size))])


async def test_large_items_are_read_a_few_at_a_time_and_one_at_least(batch_journal: Batched) -> None:
    sizes = [1, 1, 50 * KIB, 50 * KIB, 500 * KIB, 1, 500 * KIB]
    await batch_journal.kept.create(NewBatch("batch", CALLER, BatchSpec(), Pipeline(plan=Plan(tasks=[Task(id=1)]))))
    await batch_journal.kept.add("batch", "default", 1, [_item(size) for size in sizes], {})
    await batch_journal.kept.start("batch", "default", "", "d", len(sizes))
    batch, after, pages = await batch_journal.kept.row("batch", "default"), 0, []
    while page := await batch_journal.kept.next_items(batch, after, 3, 60 * KIB):
        pages.append([len(item.inputs[0].value.text) for item in page])
        after = page[-1].index
    assert pages == [sizes[:3], sizes[3:5], sizes[5:]]
    assert len(await batch_journal.kept.next_items(batch, 4, 3, 60 * KIB)) == 1
