"""Checks of an answer and its output files, written as data in the cases.

| key | holds if |
|---|---|
| `all` | the answer contains each text; of a list of texts, one |
| `none` | the answer contains none of these texts |
| `matches` | the answer matches this regular expression |
| `number` | `[value, tolerance]`: the answer contains such a number |
| `words` | `{"of": text, "share": 0.7}`: the answer has this share of the text's different words |
| `max_characters` | the answer is not longer |
| `files` | `[least, most]`: number of output files |
| `file` | one output file has these properties |
| `each_file` | there are output files, and each has these properties |

Texts are compared without regard to case, spacing and Markdown; they must begin and end at a word. Properties of
files: `kind` (audio or image), `format` (as the decoder names it: WAV, OGG, MP3, PNG, JPEG); of recordings `seconds`
(`[least, most]`) and `quiet_start` (largest level of the first quarter of a second); of pictures `size`, `square`,
`grey`, `pixels` (`[x, y, colour]`, relative positions), `brighter_than` and `darker_than` (an input file), and `mask`
(relative positions inside and outside of a subject that is white or opaque).
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image, ImageColor, ImageStat, UnidentifiedImageError

COLOUR_TOLERANCE = 70
"""Largest difference per channel, of 255; blurs and JPEG change colours."""

MASK_LEVELS = (80, 175)
"""Brightness or opacity up to which a place is outside of a subject, and from which it is inside."""

START_SECONDS = 0.25

_MARKUP = re.compile(r"[*_`\\]|^\s*>\s?", re.MULTILINE)
_QUOTES = str.maketrans("‘’“”–\u00a0\u202f", "''\"\"-  ")
_NUMBER = re.compile(r"(?<![\d.,])\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Output:
    """An output file of a run."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a check looks at.

    Args:
        text: of the answer, without the list of steps.
        outputs: output files.
        inputs: folder of the case's input files.
    """

    text: str
    outputs: tuple[Output, ...] = ()
    inputs: Path = Path()

    @property
    def plain(self) -> str:
        """Text in the form in which texts are compared."""
        return plain(self.text)


def plain(text: str) -> str:
    """Removes Markdown, case and differences in spacing and quotes."""
    return " ".join(_MARKUP.sub("", text).translate(_QUOTES).split()).casefold()


def contains(text: str, wanted: str) -> bool:
    """Whether a plain text contains another text, which must begin and end at a word or number."""
    found = plain(wanted)
    before = r"(?<![a-z0-9])(?<!\d[.,])" if found[:1].isascii() and found[:1].isalnum() else ""
    after = r"(?![a-z0-9])(?![.,]\d)" if found[-1:].isascii() and found[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(found)}{after}", text) is not None


def failures(check: Mapping[str, Any], answer: Answer) -> list[str]:
    """Keys of a check that do not hold, each with the part that fails."""
    return [f"{key}: {reason}" for key, wanted in check.items() for reason in _CHECKS[key](wanted, answer)]


def _all(wanted: Sequence[str | Sequence[str]], answer: Answer) -> Iterator[str]:
    text = answer.plain
    for one in wanted:
        if not any(contains(text, choice) for choice in ([one] if isinstance(one, str) else one)):
            yield f"{one} is missing"


def _none(wanted: Sequence[str], answer: Answer) -> Iterator[str]:
    text = answer.plain
    yield from (f"{one} is in the answer" for one in wanted if contains(text, one))


def _matches(pattern: str, answer: Answer) -> Iterator[str]:
    if not re.search(pattern, answer.plain):
        yield f"{pattern} does not match"


def _number(wanted: Sequence[float], answer: Answer) -> Iterator[str]:
    value, tolerance = wanted
    numbers = (float(found.replace(",", "")) for found in _NUMBER.findall(answer.plain) if found.count(".") <= 1)
    if not any(abs(number - value) <= tolerance for number in numbers):
        yield f"{value} is missing"


def _words(wanted: Mapping[str, Any], answer: Answer) -> Iterator[str]:
    expected = set(_WORD.findall(plain(wanted["of"])))
    share = len(expected & set(_WORD.findall(answer.plain))) / len(expected)
    if share < wanted["share"]:
        yield f"the answer has {share:.2f} of the words"


def _max_characters(wanted: int, answer: Answer) -> Iterator[str]:
    if len(answer.plain) > wanted:
        yield f"the answer has {len(answer.plain)}"


def _files(wanted: Sequence[int], answer: Answer) -> Iterator[str]:
    least, most = wanted
    if not least <= len(answer.outputs) <= most:
        yield f"there are {len(answer.outputs)}"


def _file(wanted: Mapping[str, Any], answer: Answer) -> Iterator[str]:
    found = [list(_properties(wanted, output, answer.inputs)) for output in answer.outputs]
    if not found:
        yield "there is no output file"
    elif all(found):
        fewest: list[str] = min(found, key=len)
        yield "; ".join(fewest)


def _each_file(wanted: Mapping[str, Any], answer: Answer) -> Iterator[str]:
    if not answer.outputs:
        yield "there is no output file"
    for output in answer.outputs:
        yield from _properties(wanted, output, answer.inputs)


_CHECKS: Mapping[str, Callable[[Any, Answer], Iterator[str]]] = {
    "all": _all,
    "none": _none,
    "matches": _matches,
    "number": _number,
    "words": _words,
    "max_characters": _max_characters,
    "files": _files,
    "file": _file,
    "each_file": _each_file,
}
KEYS = frozenset(_CHECKS)


# ---------------------------------------------------------------- properties of files


def _properties(wanted: Mapping[str, Any], output: Output, inputs: Path) -> Iterator[str]:
    """Properties that a file does not have."""
    describe = _recording if wanted["kind"] == "audio" else _picture
    try:
        yield from (f"{output.name}: {reason}" for reason in describe(wanted, output.content, inputs))
    except (soundfile.LibsndfileError, UnidentifiedImageError, OSError):
        yield f"{output.name} is no {wanted['kind']} file"


def _recording(wanted: Mapping[str, Any], content: bytes, _inputs: Path) -> Iterator[str]:
    with soundfile.SoundFile(io.BytesIO(content)) as file:
        kind, rate = file.format, file.samplerate
        samples = file.read(always_2d=True).mean(axis=1)
    seconds = len(samples) / rate
    least, most = wanted.get("seconds", (0, seconds))
    if not least <= seconds <= most:
        yield f"it lasts {seconds:.1f} s"
    if kind != wanted.get("format", kind):
        yield f"its format is {kind}"
    level = float(np.sqrt(np.mean(samples[: int(START_SECONDS * rate)] ** 2)))
    if level > wanted.get("quiet_start", level):
        yield f"its start has the level {level:.3f}"


def _picture(wanted: Mapping[str, Any], content: bytes, inputs: Path) -> Iterator[str]:
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()
    width, height = picture.size
    if [width, height] != wanted.get("size", [width, height]):
        yield f"its size is {width} by {height}"
    if wanted.get("square") and width != height:
        yield f"its size is {width} by {height}"
    if picture.format != wanted.get("format", picture.format):
        yield f"its format is {picture.format}"
    if wanted.get("grey") and not _is_grey(picture):
        yield "it has colours"
    for left, top, colour in wanted.get("pixels", ()):
        if not _has_colour(picture, (left, top), colour):
            yield f"it is not {colour} at {left}, {top}"
    yield from _brightness(wanted, picture, inputs)
    if "mask" in wanted and not _is_mask(picture, **wanted["mask"]):
        yield "it does not separate the subject from its background"


def _brightness(wanted: Mapping[str, Any], picture: Image.Image, inputs: Path) -> Iterator[str]:
    if "brighter_than" in wanted and _mean(picture) <= _mean(Image.open(inputs / wanted["brighter_than"])):
        yield "it is not brighter"
    if "darker_than" in wanted and _mean(picture) >= _mean(Image.open(inputs / wanted["darker_than"])):
        yield "it is not darker"


def _mean(picture: Image.Image) -> float:
    return ImageStat.Stat(picture.convert("L")).mean[0]


def _is_grey(picture: Image.Image) -> bool:
    channels = np.asarray(picture.convert("RGB"), dtype=int)
    return int(np.ptp(channels, axis=2).max()) <= 2


def _has_colour(picture: Image.Image, place: tuple[float, float], colour: str) -> bool:
    found = _pixel(picture.convert("RGB"), place)
    return all(abs(a - b) <= COLOUR_TOLERANCE for a, b in zip(found, ImageColor.getrgb(colour), strict=False))


def _is_mask(picture: Image.Image, inside: tuple[float, float], outside: tuple[float, float]) -> bool:
    channel = picture.getchannel("A") if "A" in picture.getbands() else picture.convert("L")
    low, high = MASK_LEVELS
    return _pixel(channel, inside)[0] >= high and _pixel(channel, outside)[0] <= low


def _pixel(picture: Image.Image, place: tuple[float, float]) -> tuple[int, ...]:
    left, top = place
    found: Any = picture.getpixel((int(left * (picture.width - 1)), int(top * (picture.height - 1))))
    return found if isinstance(found, tuple) else (found,)
