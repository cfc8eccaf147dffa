"""Pictures, pages and recordings: what is read, and what is refused before it can do harm."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from PIL import Image, ImageOps

from experts.host.handler import Media
from experts.host.media.audio import read_audio, resample, wav
from experts.host.media.images import MAX_PIXELS, derive_name, open_image, pages, png
from experts.host.media.pdf import MAX_PAGE_PIXELS
from services.common.errors import InvalidRequest
from tests.data.make import pdf
from tests.support.isolated_functions import run_in_this_process
from tests.support.samples import sample

RED, BLUE = (200, 30, 30), (30, 60, 200)


def halves(mode: str = "RGB") -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (40, 20), RED)
    image.paste(BLUE, (20, 0, 40, 20))
    return image.convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> Media:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Media(buffer.getvalue(), f"image/{kind.lower()}", f"halves.{kind.lower()}")


def bomb(width: int, height: int) -> Media:
    """A small PNG whose header states a large size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return Media(b"\x89PNG\r\n\x1a\n" + header + body, "image/png", "bomb.png")


def pixel(image: Image.Image, x: int, y: int) -> tuple[int, ...]:
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    return value


def close(one: tuple[int, ...], other: tuple[int, ...], far: int = 16) -> bool:
    return all(abs(a - b) <= far for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF"])
def test_common_image_formats_keep_their_colours(kind: str) -> None:
    image = open_image(encoded(halves(), kind))
    assert image.mode == "RGB"
    assert image.size == (40, 20)
    assert close(pixel(image, 5, 10), RED, 24)
    assert close(pixel(image, 35, 10), BLUE, 24)


def test_heic_image_is_decoded() -> None:
    pytest.importorskip("pi_heif")
    image = open_image(sample("halves.heic"))
    assert close(pixel(image, 5, 30), (198, 40, 40))
    assert close(pixel(image, 90, 30), (21, 101, 192))


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "YCbCr"])
def test_other_colour_modes_become_rgb(mode: str) -> None:
    image = open_image(encoded(halves(mode), "JPEG" if mode in {"CMYK", "YCbCr"} else "PNG"))
    assert image.mode == "RGB"
    left, right = pixel(image, 5, 10), pixel(image, 35, 10)
    if mode == "L":
        assert left[0] == left[1] == left[2] != right[0]
    else:
        assert close(left, RED, 40)
        assert close(right, BLUE, 40)


def test_sixteen_bit_values_are_scaled() -> None:
    grey = np.array([[0, 16384, 32768, 65535]], dtype=np.uint16)
    image = open_image(encoded(Image.fromarray(grey), "PNG"))
    assert [pixel(image, x, 0)[0] for x in range(4)] == [0, 64, 128, 255]


def test_depth_map_with_missing_values_is_rendered() -> None:
    depths = np.array([[0.5, 2.5], [np.nan, np.inf]], np.float32)
    assert np.asarray(open_image(encoded(Image.fromarray(depths), "TIFF")))[:, :, 0].tolist() == [[51, 255], [0, 0]]


def test_exif_rotation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to see it upright
    image = open_image(encoded(halves(), "JPEG", exif=exif))
    assert image.size == (20, 40)
    assert close(pixel(image, 10, 5), RED, 24)


def test_transparency_is_flattened_on_white_by_default() -> None:
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    media = encoded(clear, "PNG")
    assert pixel(open_image(media), 1, 1) == (255, 255, 255)
    assert pixel(open_image(media, alpha=True), 1, 1)[3] == 0


def test_first_frame_of_an_animation_is_used() -> None:
    media = encoded(halves(), "GIF", save_all=True, append_images=[Image.new("RGB", (40, 20), "white")])
    assert close(pixel(open_image(media), 5, 10), RED, 24)
    assert len(pages(media)) == 1


def test_tiff_frames_are_pages() -> None:
    media = encoded(halves(), "TIFF", save_all=True, append_images=[Image.new("RGB", (10, 30), "white")])
    first, second = pages(media)
    assert first.number == 1
    assert (first.width, first.height) == (40, 20)
    assert pixel(first.picture(), 5, 10) == RED
    assert pixel(second.picture(), 5, 10) == (255, 255, 255)


def test_png_round_trip() -> None:
    assert open_image(png(halves(), "x.png")).tobytes() == halves().tobytes()


def test_outputs_are_named_after_their_input_file() -> None:
    assert derive_name(Media(b"", "image/jpeg", "a/holiday photo.jpg"), "faces", "png") == "holiday photo-faces.png"
    assert derive_name(Media(b"", "image/jpeg", ""), "faces", "png") == "file-faces.png"


# ---------------------------------------------------------------- PDF


def test_pdf_text_has_boxes_and_page_numbers() -> None:
    first, second = pages(sample("letter.pdf"))
    assert first.number == 1
    assert second.number == 2
    assert first.lines[0].text == "Harbour Museum"
    assert second.lines[-1].text == "Director"
    left, top, right, bottom = first.lines[0].box
    assert 0 < left < right < first.width
    assert 0 < top < bottom < first.height / 4


def test_pdf_boxes_match_the_rendered_page() -> None:
    page = pages(sample("letter.pdf"))[0]
    picture = page.picture()
    assert picture.size == pytest.approx((page.width, page.height), abs=1)
    ink = np.asarray(picture.crop(page.lines[0].box).convert("L"))
    assert (ink < 128).mean() > 0.1


@pytest.mark.parametrize(
    ("matrix", "entries"),
    [
        ("0 1 -1 0 200 50", b"/Rotate 90"),
        ("-1 0 0 -1 500 300", b"/Rotate 180"),
        ("0 -1 1 0 200 600", b"/Rotate 270"),
        ("1 0 0 1 250 500", b"/CropBox [200 300 590 600]"),
        ("0 1 -1 0 200 400", b"/Rotate 90 /CropBox [100 350 300 800]"),
        ("0 1 -1 0 200 50", b""),
    ],
)
def test_text_of_rotated_or_cropped_pages_has_correct_boxes(matrix: str, entries: bytes) -> None:
    document = Media(
        pdf([f"BT /F1 20 Tf {matrix} Tm (Gate closed) Tj ET"], entries=entries), "application/pdf", "x.pdf"
    )
    (page,) = pages(document)
    ink = ImageOps.invert(page.picture().convert("L")).getbbox()
    assert [line.text for line in page.lines] == ["Gate closed"]
    assert page.lines[0].box == pytest.approx(ink, abs=2)


def test_distant_cells_of_a_row_are_separate_lines() -> None:
    text = "BT /F1 12 Tf 72 700 Td (Total) Tj 200 0 Td ($5.00) Tj ET"
    (page,) = pages(Media(pdf([text]), "application/pdf", "x.pdf"))
    assert [line.text for line in page.lines] == ["Total", "$5.00"]


def test_page_without_text_has_no_text_lines() -> None:
    (page,) = pages(Media(pdf(["0 0 m 100 100 l S"]), "application/pdf", "drawing.pdf"))
    assert page.lines == ()
    assert page.picture().size == pytest.approx((page.width, page.height), abs=1)


def test_single_page_pdf_is_an_image() -> None:
    image = open_image(Media(pdf(["1 0 0 rg 0 0 595 842 re f"]), "application/pdf", "red.pdf"))
    assert pixel(image, 600, 600) == (255, 0, 0)


def test_large_page_is_rendered_within_the_limit() -> None:
    (page,) = pages(Media(pdf(["0 0 m 9 9 l S"], size=(100_000, 100_000)), "application/pdf", "poster.pdf"))
    width, height = page.picture().size
    assert width * height <= 1.01 * MAX_PAGE_PIXELS
    assert (width, height) == pytest.approx((page.width, page.height), abs=1)


# ---------------------------------------------------------------- refusals


def locked_pdf() -> bytes:
    zeros = b"<" + b"00" * 32 + b">"
    encryption = b"<< /Filter /Standard /V 1 /R 2 /O %s /U %s /P -4 >>" % (zeros, zeros)
    return pdf(["0 0 m 9 9 l S"], encryption=encryption)


@pytest.mark.parametrize(
    ("media", "message"),
    [
        (Media(b"", "image/png", "empty.png"), "cannot decode empty.png: it is not a supported image"),
        (Media(b"just some words", "text/plain", "notes.png"), "cannot decode notes.png: it is not a supported image"),
        (
            Media(encoded(halves(), "PNG").content[:60], "image/png", "cut.png"),
            "cannot decode cut.png: the image data is corrupted",
        ),
        (Media(encoded(halves(), "JPEG").content[:300], "image/jpeg", "cut.jpg"), "cannot decode cut.jpg: "),
        (Media(b"\x89PNG\r\n\x1a\n" + bytes(100), "image/png", "broken.png"), "cannot decode broken.png: "),
        (Media(b"GIF89a" + b"\xff" * 40, "image/gif", "broken.gif"), "cannot decode broken.gif: "),
        (
            Media(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image/x-eps", "x.eps"),
            "cannot decode x.eps: it is not a supported image",
        ),
        (bomb(50_000, 50_000), "bomb.png has"),
        (bomb(12_000, 10_000), "bomb.png has"),
        (
            Media(b"%PDF-1.4 nothing more", "application/pdf", "broken.pdf"),
            "cannot read broken.pdf: it is not a valid PDF",
        ),
        (
            Media(pdf([" "]).replace(b"/Type /Page ", b"/Type /Rage "), "application/pdf", "odd.pdf"),
            "cannot read odd.pdf: it is not a valid PDF",
        ),
        (Media(locked_pdf(), "application/pdf", "locked.pdf"), "cannot read locked.pdf: it is protected by a password"),
        (Media(pdf([" "] * 101), "application/pdf", "book.pdf"), "book.pdf has 101 pages; the limit is 100"),
        (sample("letter.pdf"), "letter.pdf has 2 pages; the input takes one image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_picture_is_rejected_with_name_and_remedy(media: Media, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_image(media, port="image")
    assert caught.value.message.startswith(message)
    assert caught.value.port == "image"
    assert caught.value.remedy


def test_decompression_bomb_is_rejected_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experts.host.media.images.run_isolated", run_in_this_process)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _self: pytest.fail("it was decoded"))
    with pytest.raises(InvalidRequest, match=str(MAX_PIXELS // 1_000_000)):
        open_image(bomb(20_000, 20_000))


def test_error_of_an_encrypted_pdf_does_not_affect_the_next_pdf() -> None:
    for content, message in ((locked_pdf(), "password"), (pdf([]), "not a valid PDF")):
        with pytest.raises(InvalidRequest, match=message):
            pages(Media(content, "application/pdf", "x.pdf"))


# ---------------------------------------------------------------- recordings


def tone(rate: int, seconds: float, hertz: float) -> NDArray[np.float32]:
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


def recorded(samples: NDArray[np.float32], rate: int, kind: str = "WAV") -> Media:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind)
    return Media(buffer.getvalue(), f"audio/{kind.lower()}", f"tone.{kind.lower()}")


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_common_audio_formats_are_decoded(kind: str) -> None:
    samples, rate = read_audio(recorded(0.5 * tone(44_100, 1.0, 440), 44_100, kind), rate=16_000)
    assert rate == 16_000
    assert len(samples) / rate == pytest.approx(1.0, abs=0.1)
    spectrum = abs(np.fft.rfft(samples))
    assert np.fft.rfftfreq(len(samples), 1 / rate)[spectrum.argmax()] == pytest.approx(440, abs=3)


def test_channels_are_mixed_to_mono() -> None:
    left = tone(8000, 0.5, 200)
    samples, rate = read_audio(recorded(np.stack([left, -left], axis=1), 8000))
    assert rate == 8000
    assert abs(samples).max() < 1e-3


@pytest.mark.parametrize(("rate", "wanted"), [(44_100, 16_000), (8000, 16_000), (16_000, 22_050), (44_101, 16_000)])
def test_resampling_keeps_the_frequency(rate: int, wanted: int) -> None:
    heard = resample(tone(rate, 0.5, 440), rate, wanted)
    assert len(heard) == pytest.approx(wanted / 2, abs=1)
    assert abs(heard - tone(wanted, 1, 440)[: len(heard)])[200:-200].max() < 1e-3


def test_resampling_removes_frequencies_above_the_new_limit() -> None:
    assert abs(resample(tone(44_100, 0.5, 12_000), 44_100, 16_000))[200:-200].max() < 0.01


def test_wav_round_trip_clips_at_full_scale() -> None:
    samples, rate = read_audio(wav(np.array([0.5, -0.5, 3.0, -3.0], dtype=np.float32), 8000, "x.wav"))
    assert rate == 8000
    assert samples == pytest.approx([0.5, -0.5, 1.0, -1.0], abs=1e-3)


def test_recording_above_full_scale_is_scaled_down() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, 20_000 * tone(8000, 0.5, 440), 8000, format="WAV", subtype="FLOAT")
    samples, _ = read_audio(Media(buffer.getvalue(), "audio/wav", "loud.wav"))
    assert samples == pytest.approx(tone(8000, 0.5, 440), abs=0.01)


def test_non_finite_samples_become_silence() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.array([0.5, np.nan, np.inf], dtype=np.float32), 8000, format="WAV", subtype="FLOAT")
    samples, _ = read_audio(Media(buffer.getvalue(), "audio/wav", "odd.wav"))
    assert np.isfinite(samples).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Media(b"", "audio/wav", "none.wav"), "cannot decode none.wav: it is not a supported audio file"),
        (
            lambda: Media(b"RIFF" + bytes(60), "audio/wav", "broken.wav"),
            "cannot decode broken.wav: it is not a supported audio file",
        ),
        (
            lambda: Media(b"just some words", "text/plain", "notes.wav"),
            "cannot decode notes.wav: it is not a supported audio file",
        ),
        (lambda: sample("sign.png"), "cannot decode sign.png: it is not a supported audio file"),
        (lambda: recorded(np.zeros(0, np.float32), 16_000), "tone.wav contains no audio samples"),
        (lambda: recorded(np.zeros(16_000 * 3, np.float32), 16_000), "tone.wav is longer than"),
        (lambda: recorded(np.zeros(10, np.float32), 100), "cannot decode tone.wav: a sample rate of 100 Hz"),
    ],
)
def test_invalid_recording_is_rejected_with_name_and_remedy(make: Callable[[], Media], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_audio(make(), longest=2.0)
    assert caught.value.message.startswith(message)
    assert caught.value.port == "audio"
    assert caught.value.remedy
