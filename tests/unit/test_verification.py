"""Golden cases, and what a verification writes to the cards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experts.host.handler import Media, Outputs
from experts.host.media import png, wav
from protos.hugginggpt.tasks import standard_tasks
from tests.readme import HOMES, MODALITIES
from tests.tiny.image_files import LEFT, solid_image, square_image
from tests.tiny.video_files import GREEN, RED, encode_frames, solid_frame
from tests.verification import cases
from tests.verification.__main__ import parse_arguments
from tests.verification.cards import Measurement, cards_path, read_cards, write_measurement
from tests.verification.cases import Case, Point, Property, find_case

FOUND = Measurement("2026-11-26", "cpu", 1200, 1500, "d" * 40, "mit")


def cards() -> list[tuple[str, str]]:
    return [(card["task"], card["id"]) for name in MODALITIES for card in read_cards(cards_path(f"experts.{name}"))]


@pytest.mark.parametrize(("task", "model"), cards())
def test_case_of_a_card_fits_the_ports_of_its_task(task: str, model: str) -> None:
    case, spec = find_case(task, model), standard_tasks()[task]
    required = {port.name for port in spec.inputs if port.required}
    for inputs in (case.inputs, *case.compared):
        assert required <= inputs.keys() <= {port.name for port in spec.inputs}
    assert case.parameters.keys() <= {parameter.name for parameter in spec.parameters}


@pytest.mark.parametrize("task", cases.BY_TASK)
def test_files_of_a_case_can_be_read(task: str) -> None:
    spec = standard_tasks()[task]
    files = {port.name for port in spec.inputs if port.modality != 1}
    for inputs in cases.BY_TASK[task].read_inputs():
        assert {name for name, value in inputs.items() if isinstance(value, Media)} == files & inputs.keys()


def test_cases_name_no_model_without_a_card() -> None:
    assert cases.BY_MODEL.keys() <= {model for _task, model in cards()}


def make_box(*edges: int) -> dict[str, int]:
    return dict(zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True))


def make_spans(*spans: tuple[float, float]) -> Outputs:
    return {"segments": [{"start": start, "end": end} for start, end in spans]}


def make_point(name: str, x: float, y: float) -> dict[str, Any]:
    return {"name": name, "x": x, "y": y, "score": 0.9}


def make_pose(nose: Point, left_eye: Point, right_eye: Point, **others: Point) -> Outputs:
    points = {"Nose": nose, "L_Eye": left_eye, "R_Eye": right_eye, **others}
    return {"keypoints": [{"points": [make_point(name, *position) for name, position in points.items()]}]}


PICTURE = {"image": png(square_image("red", LEFT, (256, 256)), "square.png")}
SILENCE, TONE = np.zeros(16_000, np.float32), np.sin(np.arange(16_000, dtype=np.float32) / 10)
FRAME = solid_frame(RED)
MASK = {"masks": [{"box": make_box(0, 0, 9, 9), "area": 81}, {"box": make_box(10, 20, 50, 51), "area": 1240}]}
OUTLINES = cases.outlines((10, 20, 50, 50), 1200)
SEGMENTS = png(square_image("black", LEFT).point(lambda level: 255 - level), "mask.png")
SPEECH = cases.has_speech(2.0, 6.7)
POSE = cases.is_pose((0, 0, 120, 200), (40, 10, 80, 50))
PROPERTIES = {
    "text": (cases.contains("text", "cat", "dog"), {"text": "A Dog."}, {"text": "a bird"}),
    "items": (
        cases.names("objects", "label", "person"),
        {"objects": [{"label": "car"}, {"label": "Person"}]},
        {"objects": [{"label": "car"}]},
    ),
    "score": (cases.is_confident(0.1), {"labels": [{"score": 0.3}]}, {"labels": [{"score": 0.01}]}),
    "no score": (cases.is_confident(0.1), {"labels": [{"score": 0.1}]}, {"labels": []}),
    "list": (cases.has_items("masks"), {"masks": [1]}, {"masks": []}),
    "box of a mask": (OUTLINES, MASK, {"masks": [{"box": make_box(20, 20, 60, 50), "area": 1200}]}),
    "area of a mask": (OUTLINES, MASK, {"masks": [{"box": make_box(10, 20, 50, 50), "area": 700}]}),
    "no mask": (OUTLINES, MASK, {"masks": []}),
    "segment elsewhere": (
        cases.covers("person", (10, 30)),
        {"mask": SEGMENTS, "segments": [{"label": "Person", "grey": 255}, {"label": "wall", "grey": 0}]},
        {"mask": SEGMENTS, "segments": [{"label": "person", "grey": 0}, {"label": "wall", "grey": 255}]},
    ),
    "mirrored pose": (POSE, make_pose((60, 30), (70, 20), (50, 20)), make_pose((60, 30), (50, 20), (70, 20))),
    "pose upside down": (POSE, make_pose((60, 30), (70, 20), (50, 20)), make_pose((60, 10), (70, 20), (50, 20))),
    "face elsewhere": (POSE, make_pose((60, 30), (70, 20), (50, 20)), make_pose((60, 80), (70, 70), (50, 70))),
    "joint outside the person": (
        POSE,
        make_pose((60, 30), (70, 20), (50, 20), L_Hip=(70, 150)),
        make_pose((60, 30), (70, 20), (50, 20), L_Hip=(170, 150)),
    ),
    "no eyes": (
        POSE,
        make_pose((60, 30), (70, 20), (50, 20)),
        {"keypoints": [{"points": [make_point("Nose", 60, 30)]}]},
    ),
    "speech in a pause": (SPEECH, make_spans((2.2, 4), (4.4, 6.6)), make_spans((0.2, 1), (2.2, 6.6))),
    "too little speech": (SPEECH, make_spans((2.2, 4), (4.4, 6.6)), make_spans((2.2, 3))),
    "no speech": (SPEECH, make_spans((1.6, 7.1)), {"segments": []}),
    "order": (cases.has_best("scores", 1), {"scores": [0.1, 0.9]}, {"scores": [0.9, 0.1]}),
    "blank picture": (cases.is_picture(256), PICTURE, {"image": png(solid_image("red", (256, 256)), "red.png")}),
    "small picture": (cases.is_picture(256), PICTURE, {"image": png(square_image("red", LEFT), "small.png")}),
    "silence": (cases.is_sound(1), {"audio": wav(TONE, 16_000, "a.wav")}, {"audio": wav(SILENCE, 16_000, "a.wav")}),
    "short sound": (cases.is_sound(1), {"audio": wav(TONE, 16_000, "a.wav")}, {"audio": wav(TONE, 32_000, "a.wav")}),
    "still film": (
        cases.is_film(2),
        {"video": encode_frames([FRAME, solid_frame(GREEN)])},
        {"video": encode_frames([FRAME, FRAME])},
    ),
}


@pytest.mark.parametrize(("expected", "outputs", "_others"), PROPERTIES.values(), ids=PROPERTIES)
def test_property_holds(expected: Property, outputs: Outputs, _others: Outputs) -> None:
    assert expected.holds(outputs)


@pytest.mark.parametrize(("expected", "_outputs", "others"), PROPERTIES.values(), ids=PROPERTIES)
def test_property_does_not_hold(expected: Property, _outputs: Outputs, others: Outputs) -> None:
    assert not expected.holds(others)


TURNED = 0.8, 0.6
"""A vector of length 1 at an angle to (1, 0)."""


@pytest.mark.parametrize(
    ("vectors", "holds"),
    [
        (((1, 0), TURNED, (0, 1)), True),
        (((1, 0), (0, 1), TURNED), False),
        (((1, 0), TURNED, TURNED), False),
        (((2, 0), TURNED, (0, 1)), False),
        (((1, 0), TURNED, (0, float("nan"))), False),
    ],
    ids=["closer", "farther", "equal", "longer than 1", "not a number"],
)
def test_vectors_of_similar_inputs_are_closer(vectors: Sequence[Sequence[float]], holds: bool) -> None:
    assert cases.is_closer("embedding").holds(*({"embedding": list(vector)} for vector in vectors)) == holds


def test_inputs_of_all_calls_of_a_case_are_read() -> None:
    case = Case({"text": "a"}, cases.is_closer("embedding"), compared=({"text": lambda: "b"}, {"text": "c"}))
    assert [inputs["text"] for inputs in case.read_inputs()] == ["a", "b", "c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "models.json"
    path.write_text(
        """[
  {
    "id": "a/b",
    "task": "conversational",
    "license": "MIT",
    "languages": ["de", "en"]
  },
  {
    "id": "a/b",
    "task": "text-generation",
    "license": "apache-2.0"
  },
  {
    "id": "a/c",
    "task": "text-generation"
  }
]
"""
    )
    return path


def test_measurement_changes_only_the_fields_that_it_knows(path: Path) -> None:
    before = path.read_text()
    write_measurement(path, "conversational", "a/b", FOUND)
    removed = [line for line in before.splitlines() if line not in path.read_text().splitlines()]
    assert removed == ['    "languages": ["de", "en"]', '    "license": "apache-2.0"']  # the first one has a comma now


def test_measurement_is_written_to_the_card_of_its_task(path: Path) -> None:
    write_measurement(path, "conversational", "a/b", FOUND)
    measured = {"date": "2026-11-26", "device": "cpu", "download_bytes": 1200, "loaded_bytes": 1500}
    assert [card.get("measured") for card in read_cards(path)] == [measured, None, None]


def test_sources_of_commit_and_licence_are_written_to_the_card(path: Path) -> None:
    how = {"how": "make verify-models", "date": "2026-11-26"}
    write_measurement(path, "conversational", "a/b", FOUND)
    write_measurement(path, "conversational", "a/b", FOUND)
    assert read_cards(path)[0]["verified"] == [{"what": "revision", **how}, {"what": "license", **how}]


def test_commit_is_written_to_all_cards_of_the_model(path: Path) -> None:
    write_measurement(path, "conversational", "a/b", FOUND)
    assert [card.get("revision") for card in read_cards(path)] == [FOUND.commit, FOUND.commit, None]


def test_licence_that_differs_only_in_case_is_not_changed(path: Path) -> None:
    write_measurement(path, "conversational", "a/b", FOUND)
    assert [card.get("license") for card in read_cards(path)] == ["MIT", "mit", None]


def test_measurement_of_another_model_changes_nothing(path: Path) -> None:
    before = path.read_text()
    write_measurement(path, "conversational", "a/d", FOUND)
    assert path.read_text() == before


def test_expert_and_model_are_selected_by_options() -> None:
    chosen = parse_arguments(["--expert", "vision", "--model", "a/b"])
    assert (chosen.expert, chosen.model) == ("vision", "a/b")


def test_licences_are_spelled_alike_on_all_cards() -> None:
    cards = [card for modality in HOMES for card in read_cards(cards_path(f"experts.{modality}"))]
    spelled = {card["license"] for card in cards if "license" in card}
    assert len(spelled) == len({name.casefold() for name in spelled})
