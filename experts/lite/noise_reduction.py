"""Noise reduction by a spectral gate, which attenuates each band where it does not exceed its background level."""

import math
from typing import TYPE_CHECKING

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.isolation import isolated_single
from experts.host.media import derive_name, read_audio, wav

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

_FRAME_SECONDS = 0.032
_HOPS_PER_FRAME = 4
_CHUNK_SECONDS = 30.0
_MARGIN_SECONDS = 0.5
_QUIETEST_SHARE = 0.15
_BACKGROUND_FACTOR = 3.0
"""Factor of the mean power of the quietest frames up to which power counts as background."""
_MIN_GAIN = 0.05
_NEIGHBOURS = (5, 3)
"""Frames and bands over which power is averaged, against audible chirping of single cells."""
_EPSILON = 1e-12


def audio_to_audio(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return isolated_single(_reduce, port="audio")


def _reduce(inputs: Inputs, _parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    recording = inputs["audio"]
    samples, rate = read_audio(recording)
    return {"audio": wav(reduce_noise(samples, rate), rate, derive_name(recording, "denoised", "wav"))}


def reduce_noise(samples: "Samples", rate: int) -> "Samples":
    """Processes overlapping pieces with cross-fades, as the background of a long recording changes."""
    import numpy as np

    chunk, margin = int(_CHUNK_SECONDS * rate), int(_MARGIN_SECONDS * rate)
    result, weight = np.zeros_like(samples), np.zeros_like(samples)
    for start in range(0, len(samples), chunk):
        part = slice(max(0, start - margin), min(len(samples), start + chunk + margin))
        length = part.stop - part.start
        ramp = np.minimum(np.arange(1, length + 1), np.arange(length, 0, -1)).astype(np.float32)
        fade = np.minimum(ramp / max(1, margin), 1)
        result[part] += fade * _gate(samples[part], rate)
        weight[part] += fade
    cleaned: Samples = result / weight
    return cleaned


def _gate(samples: "Samples", rate: int) -> "Samples":
    """Attenuates the background of one piece in each frequency band."""
    import numpy as np

    size = 1 << max(5, round(math.log2(rate * _FRAME_SECONDS)))
    hop = size // _HOPS_PER_FRAME
    window = np.sqrt(np.hanning(size + 1)[:-1]).astype(np.float32)
    padded = np.pad(samples, (size, 2 * size))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    spectrum = np.fft.rfft(frames * window, axis=1).astype(np.complex64)
    power = _moving_mean(_moving_mean(abs(spectrum) ** 2, _NEIGHBOURS[0], 0), _NEIGHBOURS[1], 1)
    audible = power[power.sum(axis=1) > _EPSILON]
    quietest = np.sort(audible, axis=0)[: max(1, int(_QUIETEST_SHARE * len(audible)))]
    background = quietest.mean(axis=0) if len(audible) else 0.0
    gain = np.clip(1 - _BACKGROUND_FACTOR * background / (power + _EPSILON), _MIN_GAIN, 1)
    cleaned = np.fft.irfft(spectrum * gain, size, axis=1).astype(np.float32) * window
    return _overlap_add(cleaned, hop, len(padded))[size : size + len(samples)]


def _moving_mean(values: "Samples", count: int, axis: int) -> "Samples":
    """Returns a moving mean."""
    import numpy as np

    edges = [(0, 0), (0, 0)]
    edges[axis] = (count // 2, count // 2)
    mean: Samples = np.lib.stride_tricks.sliding_window_view(np.pad(values, edges, "edge"), count, axis).mean(axis=-1)
    return mean


def _overlap_add(frames: "Samples", hop: int, length: int) -> "Samples":
    """Overlap-add; the squared windows sum to half the number of hops in a frame."""
    import numpy as np

    total = np.zeros(length, np.float32)
    size = frames.shape[1]
    for index, frame in enumerate(frames):
        total[index * hop : index * hop + size] += frame
    return total / (_HOPS_PER_FRAME / 2)
