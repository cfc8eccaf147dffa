"""Decoding and encoding of video frames."""

import numpy as np
import pytest
from PIL.Image import Image

from experts.host.handler import Media
from experts.video.frames import encode_video, sample_frames
from services.common.errors import InvalidRequest, ModelFailed
from tests.support.isolated_functions import run_in_this_process
from tests.tiny.video_files import Pixels, decode_frames, encode_frames, solid_frame


def _numbered_frames(count: int) -> list[Pixels]:
    """Returns frames whose grey value encodes their index."""
    return [solid_frame([at * 255 // max(1, count - 1)] * 3) for at in range(count)]


def _read_number(image: Image, count: int) -> int:
    return round(float(np.asarray(image).mean()) * (count - 1) / 255)


@pytest.mark.parametrize("options", [{}, {"g": "5"}, {"g": "100", "bf": "3"}, {"g": "1"}])
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_sampled_frames_are_evenly_spaced(options: dict[str, str], count: int) -> None:
    video = encode_frames(_numbered_frames(40), "mp4", "libx264", **options)
    expected = [20] if count == 1 else [round(at * 39 / (count - 1)) for at in range(count)]
    assert [_read_number(image, 40) for image in sample_frames(video, count)] == expected


def test_short_video_repeats_frames() -> None:
    assert [_read_number(image, 2) for image in sample_frames(encode_frames(_numbered_frames(2)), 4)] == [0, 0, 1, 1]


def test_video_without_timestamps_is_decoded_as_a_whole() -> None:
    raw = encode_frames(_numbered_frames(300), kind="h264")
    found = [_read_number(image, 300) for image in sample_frames(raw, 3)]
    assert found[0] == 0
    assert found[1] == pytest.approx(150, abs=8)
    assert found[2] > 290


def test_truncated_video_shows_its_remaining_frames() -> None:
    content = encode_frames(_numbered_frames(100), kind="matroska", g="10").content
    images = sample_frames(Media(content[: len(content) * 2 // 3], "video/x-matroska", "cut.mkv"), 5)
    numbers = [_read_number(image, 100) for image in images]
    assert numbers == sorted(numbers)
    assert len(numbers) == 5
    assert numbers[0] == 0


@pytest.mark.parametrize(("kind", "media_type"), [("mp4", "video/mp4"), ("webm", "video/webm")])
def test_encoded_video_is_decoded_to_the_same_frames(kind: str, media_type: str) -> None:
    frames = _numbered_frames(9)
    media = encode_video(frames, 7.0, "film", kind)
    decoded, rate = decode_frames(media)
    assert media.media_type == media_type
    assert media.name == f"film.{kind}"
    assert len(decoded) == 9
    assert rate == 7.0
    assert {frame.shape for frame in decoded} == {(48, 64, 3)}
    assert max(abs(int(a.mean()) - int(b.mean())) for a, b in zip(decoded, frames, strict=True)) <= 3


def test_odd_sizes_lose_a_row_and_a_column() -> None:
    decoded, _ = decode_frames(encode_video([solid_frame([9, 9, 9], 33, 1)], 8.0, "film"))
    assert decoded[0].shape == (2, 32, 3)


def test_encoding_no_frames_is_a_model_failure() -> None:
    with pytest.raises(ModelFailed):
        encode_video([], 8.0, "film")


def test_too_large_video_is_rejected_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experts.video.frames.run_isolated", run_in_this_process)
    monkeypatch.setattr("experts.video.frames.MAX_PIXELS", 100)
    with pytest.raises(InvalidRequest, match="64 x 48 pixels"):
        sample_frames(encode_frames(_numbered_frames(2)), 1)


def test_too_long_video_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experts.video.frames.run_isolated", run_in_this_process)
    monkeypatch.setattr("experts.video.frames.MAX_SECONDS", 1.0)
    with pytest.raises(InvalidRequest, match="longer than"):
        sample_frames(encode_frames(_numbered_frames(40)), 1)
