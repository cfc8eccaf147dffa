"""File formats of the lite expert: recordings and pictures in each format that it writes."""

import io

import numpy as np
import pytest
import soundfile
from PIL import Image

from experts.host.handler import Media
from experts.host.media import png
from services.common.errors import InvalidRequest
from tests.support.samples import infer, load_lite_model, run_lite_task, sample

RATE = 22_050


def recording(rate: int = RATE, channels: int = 1, seconds: float = 0.5) -> Media:
    tone = np.sin(np.arange(int(rate * seconds)) / rate * 2 * np.pi * 440)[:, None].repeat(channels, axis=1) / 2
    buffer = io.BytesIO()
    soundfile.write(buffer, tone, rate, format="WAV")
    return Media(buffer.getvalue(), "audio/wav", "memo.wav")


def convert_audio(media: Media, new: str) -> Media:
    audio = run_lite_task("audio-conversion", "lite/audio-formats", {"audio": media}, f'{{"format":"{new}"}}')["audio"]
    assert isinstance(audio, Media)
    return audio


def convert_image(media: Media, new: str) -> Media:
    image = run_lite_task("image-conversion", "lite/image-formats", {"image": media}, f'{{"format":"{new}"}}')["image"]
    assert isinstance(image, Media)
    return image


@pytest.mark.parametrize(("new", "encoder"), [("mp3", "MP3"), ("ogg", "OGG"), ("flac", "FLAC"), ("wav", "WAV")])
def test_recording_is_encoded_in_the_requested_format(new: str, encoder: str) -> None:
    converted = convert_audio(recording(channels=2), new)
    found = soundfile.info(io.BytesIO(converted.content))
    assert found.format == encoder
    assert found.channels == 2
    assert found.duration == pytest.approx(0.5, abs=0.1)
    assert converted.name == f"memo.{new}"


def test_sample_rate_that_mp3_lacks_is_resampled() -> None:
    converted = convert_audio(recording(rate=96_000), "mp3")
    assert soundfile.info(io.BytesIO(converted.content)).samplerate == 48_000


def test_recording_with_many_channels_becomes_mono_mp3() -> None:
    converted = convert_audio(recording(channels=6), "mp3")
    assert soundfile.info(io.BytesIO(converted.content)).channels == 1


def test_file_that_is_no_recording_is_rejected_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"cannot decode memo\.wav"):
        convert_audio(Media(b"RIFF but no wave", "audio/wav", "memo.wav"), "mp3")


def test_recording_without_samples_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="no audio samples"):
        convert_audio(recording(seconds=0), "mp3")


@pytest.mark.parametrize(
    ("new", "encoder", "name"),
    [
        ("jpeg", "JPEG", "apple.jpg"),
        ("png", "PNG", "apple.png"),
        ("webp", "WEBP", "apple.webp"),
        ("gif", "GIF", "apple.gif"),
        ("bmp", "BMP", "apple.bmp"),
        ("tiff", "TIFF", "apple.tif"),
    ],
)
def test_picture_is_encoded_in_the_requested_format(new: str, encoder: str, name: str) -> None:
    original = sample("apple.png")
    converted = convert_image(original, new)
    found = Image.open(io.BytesIO(converted.content))
    assert found.format == encoder
    assert found.size == Image.open(io.BytesIO(original.content)).size
    assert converted.name == name


def test_picture_becomes_a_pdf_of_one_page() -> None:
    converted = convert_image(sample("apple.png"), "pdf")
    assert converted.media_type == "application/pdf"
    count = run_lite_task("page-count", "lite/page-count", {"image": converted})
    assert count["statistics"] == {"pages": 1}


def test_transparent_picture_is_white_where_the_format_has_no_transparency() -> None:
    clear = png(Image.new("RGBA", (8, 8), (0, 0, 0, 0)), "clear.png")
    assert Image.open(io.BytesIO(convert_image(clear, "bmp").content)).getpixel((0, 0)) == (255, 255, 255)
    kept = Image.open(io.BytesIO(convert_image(clear, "webp").content)).convert("RGBA")
    assert kept.getpixel((0, 0))[3] == 0  # type: ignore[index]  # RGBA


@pytest.mark.parametrize("task", ["audio-conversion", "image-conversion"])
def test_missing_format_is_an_error_that_lists_the_formats(task: str) -> None:
    media = recording() if task.startswith("audio") else sample("apple.png")
    with pytest.raises(InvalidRequest, match="format is missing") as caught:
        infer(load_lite_model(task, ""), {task.partition("-")[0]: media})
    assert "wav" in caught.value.remedy or "png" in caught.value.remedy
