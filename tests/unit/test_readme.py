"""What README and the page of k8s say of themselves."""

import re

import pytest

from protos.hugginggpt.tasks import standard_tasks
from tests.readme import PAGES, PARTS, rewritten, tasks


def test_its_generated_parts_are_fresh() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- make readme: (\S+) -->", text)) == sorted(PARTS)
    assert rewritten(text) == text, "run `make readme`"


def test_every_task_stands_in_its_table_once() -> None:
    rows = re.findall(r"^\| (\S+) \| .* → ", tasks().replace("| task |", ""), re.MULTILINE)
    assert sorted(rows) == sorted(standard_tasks())
    assert "| table-question-answering | question, table → text, details | google/tapas-base" in tasks()


def test_what_is_between_the_comments_is_made_anew_and_the_rest_is_left() -> None:
    text = "before\n<!-- make readme: tasks -->\nold\n<!-- end -->\nafter\n"
    assert rewritten(text) == text.replace("old\n", tasks())


def test_a_part_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- make readme: nothing -->\n<!-- end -->\n")
