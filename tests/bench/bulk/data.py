"""Pictures of the benchmark: JPEGs of 640 by 480 with noise, one in a hundred of them cut off."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

BROKEN_EVERY = 100
_NOISE = 14


def _is_broken(index: int) -> bool:
    return index % BROKEN_EVERY == BROKEN_EVERY // 2


def draw_pictures(folder: Path, count: int) -> None:
    """Writes pictures 00000.jpg and on; those that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for index in range(count):
        file = folder / f"{index:05}.jpg"
        blocks = random.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        noise = random.integers(-_NOISE, _NOISE, (480, 640, 1))
        if file.exists():
            continue
        pixels = np.asarray(Image.fromarray(blocks).resize((640, 480), Image.Resampling.BICUBIC)).astype(int) + noise
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=72)
        if _is_broken(index):
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 3])


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
