"""Files of the benchmark: pictures, one in a hundred of them cut off, PDFs, and recordings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from experts.host.media import wav
from tests.bench.bulk.models import WORDS
from tests.eval.answers.files import content
from tests.tiny.audio_files import HIGH, LOW, RATE, make_tone

BROKEN_EVERY = 100
_NOISE = 14
_PAGES, _LINES, _LINE_WORDS = 6, 8, 8
_SECONDS = 2.0


def _is_broken(index: int) -> bool:
    return index % BROKEN_EVERY == BROKEN_EVERY // 2


def draw_pictures(folder: Path, count: int) -> None:
    """Writes JPEGs of 640 by 480 with noise."""
    random = np.random.default_rng(0)
    for index in range(count):
        blocks = random.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        noise = random.integers(-_NOISE, _NOISE, (480, 640, 1))
        pixels = np.asarray(Image.fromarray(blocks).resize((640, 480), Image.Resampling.BICUBIC)).astype(int) + noise
        file = folder / f"{index:05}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=72)
        if _is_broken(index):
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 3])


def write_documents(folder: Path, count: int) -> None:
    """Writes PDFs of some pages of text."""
    random = np.random.default_rng(0)
    for index in range(count):
        words = random.choice(WORDS, (_PAGES, _LINES, _LINE_WORDS))
        name = f"{index:05}.pdf"
        (folder / name).write_bytes(content(name, {"pdf": [[" ".join(line) for line in page] for page in words]}))


def record_tones(folder: Path, count: int) -> None:
    """Writes WAV files of tones in noise, which the tiny model has learned to transcribe."""
    random = np.random.default_rng(0)
    for index in range(count):
        tone = make_tone(HIGH if index % 2 else LOW, _SECONDS)
        samples = tone + random.normal(0, 0.001, tone.shape).astype(np.float32)
        name = f"{index:05}.wav"
        (folder / name).write_bytes(wav(samples, RATE, name).content)


def copy_pictures(folder: Path, pictures: Path, count: int, mark: bytes) -> None:
    """Writes so many pictures that are not broken, each followed by a mark, which decoders ignore."""
    folder.mkdir(parents=True)
    for index, file in zip(range(count), _whole(pictures), strict=False):
        (folder / f"{index:05}.jpg").write_bytes(file.read_bytes() + mark)


def _whole(pictures: Path) -> Sequence[Path]:
    """The pictures of a folder that are not broken."""
    return [file for index, file in enumerate(sorted(pictures.glob("*.jpg"))) if not _is_broken(index)]


def link_pictures(folder: Path, pictures: Path, count: int) -> None:
    """Writes so many hard links to the pictures of a folder that are not broken."""
    folder.mkdir(parents=True, exist_ok=True)
    files = _whole(pictures)
    for index in range(count):
        (folder / f"{index:06}.jpg").hardlink_to(files[index % len(files)])
