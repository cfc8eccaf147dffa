"""The routing table as it is written, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from services.common.errors import FailedPrecondition
from services.selector.routing_table import ModelName, RoutingTable, read

WHOLE = """\
format: hugginggpt/routes/1
forbidden: [org/leaky]
tasks:
  image-to-text:
    model: org/ocr@0123abc
    shadow: org/new-ocr
  object-detection:
    candidates:
      - {model: a, weight: 3}
      - {model: b, weight: 1}
      - c
    forbidden: [d, e@2]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "routes.yaml"
    path.write_text(text)
    return path


def test_a_table_says_what_is_laid_down(tmp_path: Path) -> None:
    table = read(written(tmp_path, WHOLE))
    reading, finding = table.route("image-to-text"), table.route("object-detection")
    assert reading.model == ModelName("org/ocr", "0123abc")
    assert reading.shadow == ModelName("org/new-ocr")
    assert finding.listed == [ModelName("a"), ModelName("b"), ModelName("c")]
    assert finding.weights == {ModelName("a"): 3, ModelName("b"): 1}
    assert table.forbids("object-detection", "d", "7")
    assert table.forbids("object-detection", "e", "2")
    assert not table.forbids("object-detection", "e", "3")
    assert table.forbids("anything", "org/leaky", "")
    assert not table.route("anything").candidates


def test_a_table_that_says_something_else_has_another_digest(tmp_path: Path) -> None:
    one, other = (read(written(tmp_path, text)) for text in (WHOLE, WHOLE.replace("weight: 3", "weight: 2")))
    assert "" == RoutingTable().digest != one.digest != other.digest
    assert read(written(tmp_path, WHOLE)).digest == one.digest


def test_scores_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "scores.yaml").write_text("format: hugginggpt/scores/1\ntasks: {image-to-text: {org/ocr: 0.5}}\n")
    table = read(written(tmp_path, "format: hugginggpt/routes/1\nscores: scores.yaml\n"))
    assert table.scores == {"image-to-text": {"org/ocr": 0.5}}


def one(entry: str) -> str:
    return f"format: hugginggpt/routes/1\ntasks:\n  image-to-text:\n    {entry}\n"


WRONG = {
    "a number that is none": (one("model: !!int x"), "contains something else than text, numbers", "correct it"),
    "a truth that is none": (one("model: !!bool foo"), "contains something else than text, numbers", "correct it"),
    "a date that is none": (one("model: !!timestamp foo"), "contains something else than text, numbers", "correct it"),
    "a set that is none": (one("model: !!set [1]"), "contains something else than text, numbers", "correct it"),
    "a number without end": (one(f"model: {'9' * 5000}"), "contains something else than text, numbers", "correct it"),
    "a letter that is none": (one('model: "\\UFFFFFFFF"'), "is neither YAML nor JSON", "correct it"),
    "no YAML": ("tasks: [", "is neither YAML nor JSON", ""),
    "empty": ("", "format: Field required", "correct that entry"),
    "no format": ("tasks: {}", "format: Field required", ""),
    "a newer format": ("format: hugginggpt/routes/2", "line 1: format: Input should be 'hugginggpt/routes/1'", ""),
    "a misspelt key": (one("modle: a"), "line 4: tasks.image-to-text.modle: unknown key", "write model"),
    "a strange key": (one("xyzzy: a"), "line 4: tasks.image-to-text.xyzzy", "known keys: candidates, forbidden"),
    "a task twice": (one("model: a") + "  image-to-text: {model: b}\n", "image-to-text is given more", "one entry"),
    "a name that is none": (one("model: 3"), "line 4: tasks.image-to-text.model: name a model", "correct"),
    "an empty name": (one("model: '@'"), "line 4: tasks.image-to-text.model: name a model", "correct"),
    "a negative weight": (
        one("candidates: [{model: a, weight: -1}]"),
        *("line 4: tasks.image-to-text.candidates.0.weight: Input should be greater", "correct"),
    ),
    "an endless weight": (one("candidates: [{model: a, weight: .inf}]"), "finite number", "correct"),
    "first and weights": (
        "format: hugginggpt/routes/1\ntasks:\n  x:\n    model: a\n    candidates: [{model: b, weight: 1}]\n",
        *("line 4: tasks.x: either a model is always first or weights", "correct"),
    ),
    "a forbidden first": (one("model: a\n    forbidden: [a]"), "the model a is forbidden, too", "correct"),
    "a forbidden shadow": (one("shadow: a\n    forbidden: [a]"), "the shadow a is forbidden, too", "correct"),
    "a shadow that may be chosen": (one("shadow: a\n    candidates: [a]"), "is no shadow", "correct"),
    "a candidate twice": (one("candidates: [a, a]"), "a is a candidate twice", "correct"),
    "scores that are not there": ("format: hugginggpt/routes/1\nscores: gone.yaml", "there is no file", ""),
    "an alias of itself": ("format: &a [*a]", "", ""),
}


@pytest.mark.parametrize(("text", "says", "helps"), WRONG.values(), ids=WRONG)
def test_a_table_that_is_wrong_is_refused_with_the_line_and_what_helps(
    tmp_path: Path, text: str, says: str, helps: str
) -> None:
    with pytest.raises(FailedPrecondition) as refused:
        read(written(tmp_path, text))
    assert refused.value.message.startswith("SELECTOR_ROUTES: ")
    assert says in refused.value.message
    assert helps in refused.value.remedy
    assert str(tmp_path) in refused.value.remedy


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match=r"SELECTOR_ROUTES: there is no file gone\.yaml$"):
        read(tmp_path / "gone.yaml")
