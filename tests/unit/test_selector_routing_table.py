"""Parsing of the routing table, and its errors."""

from pathlib import Path

import pytest

from services.common.errors import FailedPrecondition
from services.selector.routing_table import ModelName, RoutingTable, read

COMPLETE = """\
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


def write_table(folder: Path, text: str) -> Path:
    path = folder / "routes.yaml"
    path.write_text(text)
    return path


def test_table_has_routes_weights_and_forbidden_models(tmp_path: Path) -> None:
    table = read(write_table(tmp_path, COMPLETE))
    ocr, detection = table.route("image-to-text"), table.route("object-detection")
    assert ocr.model == ModelName("org/ocr", "0123abc")
    assert ocr.shadow == ModelName("org/new-ocr")
    assert detection.listed == [ModelName("a"), ModelName("b"), ModelName("c")]
    assert detection.weights == {ModelName("a"): 3, ModelName("b"): 1}
    assert table.forbids("object-detection", "d", "7")
    assert table.forbids("object-detection", "e", "2")
    assert not table.forbids("object-detection", "e", "3")
    assert table.forbids("anything", "org/leaky", "")
    assert not table.route("anything").candidates


def test_digest_changes_with_the_table(tmp_path: Path) -> None:
    first, second = (
        read(write_table(tmp_path, text)) for text in (COMPLETE, COMPLETE.replace("weight: 3", "weight: 2"))
    )
    assert "" == RoutingTable().digest != first.digest != second.digest
    assert read(write_table(tmp_path, COMPLETE)).digest == first.digest


def test_scores_are_read_from_a_separate_file(tmp_path: Path) -> None:
    (tmp_path / "scores.yaml").write_text("format: hugginggpt/scores/1\ntasks: {image-to-text: {org/ocr: 0.5}}\n")
    table = read(write_table(tmp_path, "format: hugginggpt/routes/1\nscores: scores.yaml\n"))
    assert table.scores == {"image-to-text": {"org/ocr": 0.5}}


def table_with(entry: str) -> str:
    return f"format: hugginggpt/routes/1\ntasks:\n  image-to-text:\n    {entry}\n"


INVALID = {
    "an invalid number": (table_with("model: !!int x"), "contains something else than text, numbers", "correct it"),
    "an invalid boolean": (table_with("model: !!bool foo"), "contains something else than text, numbers", "correct it"),
    "an invalid date": (
        table_with("model: !!timestamp foo"),
        "contains something else than text, numbers",
        "correct it",
    ),
    "an invalid set": (table_with("model: !!set [1]"), "contains something else than text, numbers", "correct it"),
    "a number of 5,000 digits": (
        table_with(f"model: {'9' * 5000}"),
        "contains something else than text, numbers",
        "correct it",
    ),
    "an invalid character": (table_with('model: "\\UFFFFFFFF"'), "is neither YAML nor JSON", "correct it"),
    "not YAML": ("tasks: [", "is neither YAML nor JSON", ""),
    "empty": ("", "format: Field required", "correct that entry"),
    "no format": ("tasks: {}", "format: Field required", ""),
    "a newer format": ("format: hugginggpt/routes/2", "line 1: format: Input should be 'hugginggpt/routes/1'", ""),
    "a misspelt key": (table_with("modle: a"), "line 4: tasks.image-to-text.modle: unknown key", "write model"),
    "an unknown key": (
        table_with("xyzzy: a"),
        "line 4: tasks.image-to-text.xyzzy",
        "known keys: candidates, forbidden",
    ),
    "a task twice": (
        table_with("model: a") + "  image-to-text: {model: b}\n",
        "image-to-text is given more",
        "one entry",
    ),
    "an invalid name": (table_with("model: 3"), "line 4: tasks.image-to-text.model: name a model", "correct"),
    "an empty name": (table_with("model: '@'"), "line 4: tasks.image-to-text.model: name a model", "correct"),
    "a negative weight": (
        table_with("candidates: [{model: a, weight: -1}]"),
        *("line 4: tasks.image-to-text.candidates.0.weight: Input should be greater", "correct"),
    ),
    "an infinite weight": (table_with("candidates: [{model: a, weight: .inf}]"), "finite number", "correct"),
    "model and weights": (
        "format: hugginggpt/routes/1\ntasks:\n  x:\n    model: a\n    candidates: [{model: b, weight: 1}]\n",
        *("line 4: tasks.x: either a model is always first or weights", "correct"),
    ),
    "a forbidden model": (table_with("model: a\n    forbidden: [a]"), "the model a is forbidden, too", "correct"),
    "a forbidden shadow": (table_with("shadow: a\n    forbidden: [a]"), "the shadow a is forbidden, too", "correct"),
    "a shadow that may be chosen": (table_with("shadow: a\n    candidates: [a]"), "is no shadow", "correct"),
    "a candidate twice": (table_with("candidates: [a, a]"), "a is a candidate twice", "correct"),
    "missing scores file": ("format: hugginggpt/routes/1\nscores: gone.yaml", "there is no file", ""),
    "an alias of itself": ("format: &a [*a]", "", ""),
}


@pytest.mark.parametrize(("text", "message", "remedy"), INVALID.values(), ids=INVALID)
def test_error_of_an_invalid_table_has_line_and_remedy(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    with pytest.raises(FailedPrecondition) as raised:
        read(write_table(tmp_path, text))
    assert raised.value.message.startswith("SELECTOR_ROUTES: ")
    assert message in raised.value.message
    assert remedy in raised.value.remedy
    assert str(tmp_path) in raised.value.remedy


def test_error_names_missing_table(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match=r"SELECTOR_ROUTES: there is no file gone\.yaml$"):
        read(tmp_path / "gone.yaml")
