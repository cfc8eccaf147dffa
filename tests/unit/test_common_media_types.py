"""The table of media types and modalities."""

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Modality
from services.common.media_types import modality_names
from services.planner import task_spec


@pytest.mark.parametrize(
    ("media_type", "names"),
    [
        ("image/png", ("IMAGE",)),
        ("application/pdf", ("IMAGE",)),
        ("TEXT/CSV; charset=utf-8", ("TABLE", "TEXT")),
        ("application/vnd.ms-excel", ("TABLE",)),
        ("text/markdown", ("TEXT",)),
        ("application/zip", ()),
        ("", ()),
    ],
)
def test_modalities_of_media_types(media_type: str, names: tuple[str, ...]) -> None:
    assert modality_names(media_type) == names


@pytest.mark.parametrize("media_type", ["image/png", "audio/wav", "video/mp4", "text/plain", "application/json"])
def test_names_are_those_of_the_protos_and_of_the_planner(media_type: str) -> None:
    for name in modality_names(media_type):
        assert Modality.Value(f"MODALITY_{name}")
        assert task_spec.Modality[name]
