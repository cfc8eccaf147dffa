"""Generated parts of README pages are current, and the table of tasks is complete."""

import json
import re

import pytest

from protos.hugginggpt.tasks import standard_tasks
from tests.readme import MODALITIES, PAGES, PARTS, ROOT, models, rewritten, tasks


def test_generated_parts_are_fresh() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- make readme: (\S+) -->", text)) == sorted(PARTS)
    assert rewritten(text) == text, "run `make readme`"


def test_every_task_is_in_the_table_once() -> None:
    rows = re.findall(r"^\| (\S+) \| .* → ", tasks().replace("| task |", ""), re.MULTILINE)
    assert sorted(rows) == sorted(standard_tasks())
    assert "| table-question-answering | question, table → text, details | google/tapas-base" in tasks()


def test_every_card_of_the_torch_experts_has_a_row() -> None:
    rows = models().splitlines()[2:]
    assert [tuple(row.split(" | ")[:2]) for row in rows] == [
        (f"| {card['id']}", card["task"])
        for modality in MODALITIES
        for card in json.loads((ROOT / "experts" / modality / "models.json").read_text(encoding="utf-8"))
    ]


def test_text_between_the_comments_is_replaced_and_the_rest_is_unchanged() -> None:
    text = "before\n<!-- make readme: tasks -->\nold\n<!-- end -->\nafter\n"
    assert rewritten(text) == text.replace("old\n", tasks())


def test_unknown_generated_part_raises() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- make readme: nothing -->\n<!-- end -->\n")
