"""File formats of recordings (libsndfile) and pictures (Pillow): decodes a file and encodes it in another format."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Media, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.isolation import isolated_single
from experts.host.media import open_image
from experts.host.media.audio import MAX_SECONDS, read_audio, too_long_error
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


@dataclass(frozen=True)
class _Format:
    """A file format, as its encoder names it."""

    encoder: str
    media_type: str
    extension: str
    options: Mapping[str, Any]


_AUDIO = {
    "mp3": _Format("MP3", "audio/mpeg", "mp3", {"subtype": "MPEG_LAYER_III"}),
    "ogg": _Format("OGG", "audio/ogg", "ogg", {"subtype": "VORBIS"}),
    "flac": _Format("FLAC", "audio/flac", "flac", {"subtype": "PCM_16"}),
    "wav": _Format("WAV", "audio/wav", "wav", {"subtype": "PCM_16"}),
}
_IMAGE = {
    "jpeg": _Format("JPEG", "image/jpeg", "jpg", {"quality": 92}),
    "png": _Format("PNG", "image/png", "png", {}),
    "webp": _Format("WEBP", "image/webp", "webp", {"quality": 90}),
    "gif": _Format("GIF", "image/gif", "gif", {}),
    "bmp": _Format("BMP", "image/bmp", "bmp", {}),
    "tiff": _Format("TIFF", "image/tiff", "tif", {"compression": "tiff_lzw"}),
    "pdf": _Format("PDF", "application/pdf", "pdf", {"resolution": 150.0}),
}
_TRANSPARENT = ("png", "webp", "gif", "tiff")
"""Formats that store transparency; for the others a picture is blended with white."""

_BLOCK = 1 << 16
"""Frames decoded and encoded at a time: libsndfile overflows its stack on long blocks of Vorbis."""
_MP3_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_MP3_CHANNELS = 2


def audio_conversion(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return isolated_single(_convert_audio, port="audio")


def image_conversion(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return isolated_single(_convert_image, port="image")


def _convert_audio(inputs: Inputs, parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    import soundfile

    new, recording = _requested_format(_AUDIO, parameters), inputs["audio"]
    try:
        with soundfile.SoundFile(io.BytesIO(recording.content)) as file:
            content = _transcode(file, recording, new)
    except (soundfile.SoundFileError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"cannot decode {recording.name}: it is not a supported audio file",
            remedy="send a WAV, FLAC, Ogg or MP3 file",
            port="audio",
        ) from error
    return {"audio": Media(content, new.media_type, _renamed(recording, new))}


def _transcode(file: Any, recording: Media, new: _Format) -> bytes:
    """Encodes an open file block by block, with its channels and its sample rate where the format has them."""
    import soundfile

    if not file.frames:
        raise InvalidRequest(f"{recording.name} contains no audio samples", remedy="record it again", port="audio")
    rate, channels, blocks = int(file.samplerate), int(file.channels), _read_blocks(file, recording)
    if new.encoder == "MP3" and rate not in _MP3_RATES:
        rate, channels, samples = _MP3_RATES[-1], 1, read_audio(recording, rate=_MP3_RATES[-1])[0][:, None]
        blocks = (samples[start : start + _BLOCK] for start in range(0, len(samples), _BLOCK))
    elif new.encoder == "MP3" and channels > _MP3_CHANNELS:
        channels, blocks = 1, (block.mean(axis=1, keepdims=True) for block in blocks)
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", rate, channels, format=new.encoder, **new.options) as target:
        for block in blocks:
            target.write(block.clip(-1, 1))
    return buffer.getvalue()


def _read_blocks(file: Any, recording: Media) -> "Iterator[Samples]":
    total = 0
    while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
        total += len(block)
        if total > MAX_SECONDS * file.samplerate:
            raise too_long_error(recording, MAX_SECONDS)
        yield block


def _convert_image(inputs: Inputs, parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    new = _requested_format(_IMAGE, parameters)
    picture = open_image(inputs["image"], alpha=new.encoder.lower() in _TRANSPARENT)
    profile = picture.info.get("icc_profile")
    options = {**new.options, "icc_profile": profile} if profile and _is_rgb(profile) else new.options
    buffer = io.BytesIO()
    picture.save(buffer, new.encoder, **options)
    return {"image": Media(buffer.getvalue(), new.media_type, _renamed(inputs["image"], new))}


def _is_rgb(profile: bytes) -> bool:
    """Whether a colour profile is for RGB, in which pictures are decoded."""
    return profile[16:20] == b"RGB "


def _requested_format(formats: Mapping[str, _Format], parameters: Parameters) -> _Format:
    name = str(parameters.get("format", ""))
    if name not in formats:
        raise InvalidRequest(
            f"the format {name} cannot be written" if name else "the new file format is missing",
            remedy=f"name one of these formats: {', '.join(formats)}",
            port=parameter_port("format"),
        )
    return formats[name]


def _renamed(media: Media, new: _Format) -> str:
    """Returns the name of a file with the extension of another format."""
    return f"{PurePosixPath(media.name.replace(chr(92), '/')).stem or 'file'}.{new.extension}"
