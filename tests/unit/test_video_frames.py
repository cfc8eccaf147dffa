"""Frames of videos, in and out."""

import numpy as np
import pytest
from PIL.Image import Image

from experts.host.handler import Media
from experts.video.frames import sampled, written
from services.common.errors import InvalidRequest, ModelFailed
from tests.support.isolated_functions import in_place
from tests.tiny.films import Pixels, filmed, plain, seen


def _numbered(count: int) -> list[Pixels]:
    """Frames that say by their grey which they are."""
    return [plain([at * 255 // max(1, count - 1)] * 3) for at in range(count)]


def _number(image: Image, count: int) -> int:
    return round(float(np.asarray(image).mean()) * (count - 1) / 255)


@pytest.mark.parametrize("options", [{}, {"g": "5"}, {"g": "100", "bf": "3"}, {"g": "1"}])
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_frames_lie_at_even_distances(options: dict[str, str], count: int) -> None:
    film = filmed(_numbered(40), "mp4", "libx264", **options)
    expected = [20] if count == 1 else [round(at * 39 / (count - 1)) for at in range(count)]
    assert [_number(image, 40) for image in sampled(film, count)] == expected


def test_a_short_film_repeats_frames() -> None:
    assert [_number(image, 2) for image in sampled(filmed(_numbered(2)), 4)] == [0, 0, 1, 1]


def test_a_film_whose_frames_have_no_times_is_seen_as_a_whole() -> None:
    raw = filmed(_numbered(300), kind="h264")
    found = [_number(image, 300) for image in sampled(raw, 3)]
    assert found[0] == 0
    assert found[1] == pytest.approx(150, abs=8)
    assert found[2] > 290


def test_a_film_cut_off_shows_what_is_left() -> None:
    content = filmed(_numbered(100), kind="matroska", g="10").content
    images = sampled(Media(content[: len(content) * 2 // 3], "video/x-matroska", "cut.mkv"), 5)
    numbers = [_number(image, 100) for image in images]
    assert numbers == sorted(numbers)
    assert (len(numbers), numbers[0]) == (5, 0)


@pytest.mark.parametrize(("kind", "media_type"), [("mp4", "video/mp4"), ("webm", "video/webm")])
def test_what_is_written_is_read_back(kind: str, media_type: str) -> None:
    frames = _numbered(9)
    media = written(frames, 7.0, "film", kind)
    read, rate = seen(media)
    assert (media.media_type, media.name, len(read), rate) == (media_type, f"film.{kind}", 9, 7.0)
    assert {frame.shape for frame in read} == {(48, 64, 3)}
    assert max(abs(int(a.mean()) - int(b.mean())) for a, b in zip(read, frames, strict=True)) <= 3


def test_odd_sizes_lose_a_row_and_a_column() -> None:
    read, _ = seen(written([plain([9, 9, 9], 33, 1)], 8.0, "film"))
    assert read[0].shape == (2, 32, 3)


def test_no_frames_are_no_video() -> None:
    with pytest.raises(ModelFailed):
        written([], 8.0, "film")


def test_a_film_too_large_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experts.video.frames.isolated", in_place)
    monkeypatch.setattr("experts.video.frames.MAX_PIXELS", 100)
    with pytest.raises(InvalidRequest, match="64 x 48 pixels"):
        sampled(filmed(_numbered(2)), 1)


def test_a_film_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experts.video.frames.isolated", in_place)
    monkeypatch.setattr("experts.video.frames.MAX_SECONDS", 1.0)
    with pytest.raises(InvalidRequest, match="longer than"):
        sampled(filmed(_numbered(40)), 1)
