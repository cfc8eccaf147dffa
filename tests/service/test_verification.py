"""Verification of models from a local Hub, with the Hub's real client."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.fakes.hub import Repository, running_hub
from tests.tiny import TinyModels
from tests.tiny.image_files import LARGE, solid_image, square_image, to_media
from tests.tiny.image_text import CAPTIONS
from tests.verification.__main__ import main
from tests.verification.cases import Case, contains, has_items, is_closer, outlines

pytestmark = pytest.mark.slow

TASKS = """
from experts.text.tasks import DEVICES, TASKS as TEXT
from experts.vision.tasks import TASKS as VISION

TASKS = {**TEXT, **VISION}
PRELOAD = ()
"""
TAGGER, CAPTIONER, SENTIMENT, ABSENT = "tiny/tagger", "tiny/blip", "tiny/sentiment", "tiny/absent"
SEGMENTER, EMBEDDER = "tiny/sam2", "tiny/embedder"
CARDS: list[dict[str, Any]] = [
    {"id": SEGMENTER, "task": "mask-generation", "license": "mit"},
    {"id": EMBEDDER, "task": "feature-extraction"},
    {"id": TAGGER, "task": "token-classification", "license": "Apache-2.0"},
    {"id": CAPTIONER, "task": "image-to-text", "license": "mit"},
    {"id": SENTIMENT, "task": "text-classification"},
    {"id": ABSENT, "task": "text-classification"},
]
CASES = {
    SEGMENTER: Case({"image": partial(to_media, square_image("red", LARGE))}, outlines(LARGE, 48 * 48)),
    EMBEDDER: Case(
        {"text": "a good film"},
        is_closer("embedding"),
        compared=({"text": "anna schmidt lives in berlin ."}, {"text": "a good film"}),
    ),
    TAGGER: Case({"text": "anna schmidt lives in berlin ."}, has_items("entities")),
    CAPTIONER: Case({"image": partial(to_media, solid_image("blue"))}, contains("text", CAPTIONS["blue"])),
    SENTIMENT: Case({"text": "a good film"}, contains("text", "negative")),
    ABSENT: Case({"text": "a good film"}, contains("text", "positive")),
}
COMMIT = "c" * 40


def find_case(_task: str, model_id: str) -> Case:
    return CASES[model_id]


class Verification(NamedTuple):
    """What one verification of all cards printed and wrote."""

    status: int
    rows: dict[str, str]
    """Printed rows by model id."""
    cards: dict[str, dict[str, Any]]
    """Written cards by model id."""
    weights: dict[str, int]
    """Bytes of the served weights by model id."""


@pytest.fixture(scope="module")
def verification(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verification]:
    folder = tmp_path_factory.mktemp("verification")
    package = folder / "verified_expert"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(TASKS)
    (package / "models.json").write_text(json.dumps(CARDS))
    built = {
        TAGGER: tiny_models.build("text", TAGGER),
        CAPTIONER: tiny_models.build("vision", CAPTIONER),
        SENTIMENT: tiny_models.build("text", SENTIMENT),
        SEGMENTER: tiny_models.build("vision", SEGMENTER),
        EMBEDDER: tiny_models.build("text", EMBEDDER),
    }
    files = {
        name: {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for name, root in built.items()
    }
    with running_hub() as hub, pytest.MonkeyPatch.context() as environment:
        hub.repositories.update(
            {name: Repository(content, COMMIT, license="bsd-3-clause") for name, content in files.items()}
        )
        environment.syspath_prepend(folder)
        environment.setenv("HF_ENDPOINT", hub.endpoint)
        environment.setenv("HF_HOME", str(folder / "cache"))
        environment.setenv("HF_HUB_OFFLINE", "0")
        environment.delenv("EXPERT_MODELS_URL", raising=False)
        with redirect_stdout(io.StringIO()) as printed:
            status = main(["verified_expert"], "", find_case)
        rows = {line.split()[1]: line for line in printed.getvalue().splitlines() if line.startswith("| tiny/")}
        cards = {card["id"]: card for card in json.loads((package / "models.json").read_text())}
        weights = {name: len(content["model.safetensors"]) for name, content in files.items()}
        yield Verification(status, rows, cards, weights)


def test_status_is_1_if_a_model_fails(verification: Verification) -> None:
    assert verification.status == 1


def test_every_card_has_a_row(verification: Verification) -> None:
    assert sorted(verification.rows) == sorted(CASES)


@pytest.mark.parametrize("model", [TAGGER, CAPTIONER, SEGMENTER])
def test_row_of_a_model_whose_property_holds(verification: Verification, model: str) -> None:
    assert "| passed |" in verification.rows[model]
    assert COMMIT[:12] in verification.rows[model]


def test_row_of_a_model_with_another_answer_has_property_and_outputs(verification: Verification) -> None:
    assert "failed: expected: text contains 'negative'; outputs: " in verification.rows[SENTIMENT]
    assert "positive" in verification.rows[SENTIMENT]


def test_row_of_a_model_whose_outputs_compare_otherwise_has_all_of_them(verification: Verification) -> None:
    assert "failed: expected: each embedding has length 1, and the first is closer" in verification.rows[EMBEDDER]
    assert verification.rows[EMBEDDER].count("'embedding'") == 3


def test_row_of_a_model_that_does_not_load_has_error_and_remedy(verification: Verification) -> None:
    assert "tiny/absent is private or does not exist" in verification.rows[ABSENT]
    assert "set HF_TOKEN" in verification.rows[ABSENT]


@pytest.mark.parametrize("model", [TAGGER, CAPTIONER, SEGMENTER])
def test_commit_and_licence_of_the_hub_are_written_to_the_card(verification: Verification, model: str) -> None:
    assert verification.cards[model]["revision"] == COMMIT
    assert verification.cards[model]["license"] == "bsd-3-clause"


@pytest.mark.parametrize("model", [TAGGER, CAPTIONER, SEGMENTER])
def test_measured_bytes_are_written_to_the_card(verification: Verification, model: str) -> None:
    measured = verification.cards[model]["measured"]
    assert measured["download_bytes"] == verification.weights[model]
    assert measured["device"] == "cpu"


@pytest.mark.parametrize("model", [SENTIMENT, EMBEDDER, ABSENT])
def test_card_of_a_failed_model_is_unchanged(verification: Verification, model: str) -> None:
    assert verification.cards[model] == next(card for card in CARDS if card["id"] == model)
