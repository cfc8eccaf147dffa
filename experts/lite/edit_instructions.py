"""Parses an image-editing instruction into ordered steps; any remainder is an error."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from experts.lite.text_processing import load_vocabulary
from services.common.errors import InvalidRequest

ABILITIES = (
    "grey or black and white, sepia, invert, edges, pencil sketch, blur, sharpen, brighter or darker, more or less "
    "contrast, resize (to 800x600, to 50%, to 800 pixels wide, half the size), crop (to 800x600, to a square), "
    "rotate (by 90 degrees, left, right), flip or mirror (horizontally, vertically)"
)

_SYNONYMS = (
    (r"\S+\.(?:png|jpe?g|webp|gif|bmp|tiff?|heic|heif|avif|pdf)\b", " "),
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (
        r"\b(\d+)\s*(?:px|pixels?)?\s*(?:wide|in width)\s*(?:,|and|by|x)\s*(\d+)\s*(?:px|pixels?)?\s*(?:high|tall)\b",
        r"resize \1x\2",
    ),
    (r"\bwidth\s*(?:of|to|=|:)?\s*(\d+)\W{0,3}(?:and\s+)?(?:px\W+)?height\s*(?:of|to|=|:)?\s*(\d+)\b", r"resize \1x\2"),
    (r"\b(?:too (?:bright|light))\b", "darker"),
    (r"\b(?:too|less) dark\b", "brighter"),
    (r"\b(?:too|less) blurr?y\b", "sharper"),
    (r"\b(?:too|less) sharp\b", "blurry"),
    (r"\btoo much contrast\b", "less contrast"),
    (r"\b(these|those|the|both|all|my|our)\s+(?:two|three|four|five)\b", r"\1"),
    (r"\bblack[ -](?:and|&|n|'n')[ -]white\b|\bb\s?[&/]\s?w\b", "grey"),
    (r"\b(?:without|no|remove)\s+(?:the\s+|all\s+)?colou?rs?\b", "grey"),
    (r"\bgr[ae]y[ -]?scaled?\b|\bgray\b", "grey"),
    (r"\b(?:counter|anti)[ -]?clockwise\b", "counterclockwise"),
    (r"\bupside[ -]down\b", "upsidedown"),
    (r"\b(half|twice)\s+as\s+(?:big|large|wide|tall|high)(?:\s+as\s+(?:it\s+is|now|before))?\b", r"\1 the size"),
    (r"\bper\s?cent\b", "%"),
    (r"°|\bdeg\b|\bdegrees?\b", " degrees"),
    (r"(?<=\d)\s*(?:px|pixels?)\b", " px"),
    (r"(?<=\d)\s*(?:x|×|by)\s*(?=\d)", "x"),
)
_CLAUSE_ENDS = re.compile(r"[,;.!?\n](?!\d)|\b(?:and|then)\b")
_OBJECT = re.compile(r"\b(?:of|showing|called|named)\s+(?:[\w'’-]+\s*)+")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = r"(\d+(?:\.\d+)?)"
_MAX_WORDS_SHOWN = 8
_RELATIVE_WORDS = ("shrink", "reduce", "smaller", "increase", "bigger", "larger", "enlarge", "enlarged", "down", "up")


@dataclass(frozen=True)
class Step:
    """One edit of the image: its name and its numbers."""

    name: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Clause:
    """Part of an instruction with one change, or with several that are not joined by "and"."""

    text: str

    @property
    def words(self) -> list[str]:
        return _WORD.findall(self.text)

    def has(self, *words: str) -> bool:
        return any(word in self.words for word in words)

    def number(self, unit: str = r"(?!\s*%)") -> float | None:
        match = re.search(rf"(?<![\dx.]){_NUMBER}(?![\dx.]){unit}", self.text)
        return float(match[1]) if match else None

    def pair(self) -> tuple[float, float] | None:
        match = re.search(r"(\d+)x(\d+)", self.text)
        return (float(match[1]), float(match[2])) if match else None

    def strength(self) -> float:
        """Strength factor: "slightly" halves, "strongly" doubles."""
        if self.has("slightly", "little", "bit", "gently", "softly", "lightly"):
            return 0.5
        return 2.0 if self.has("strongly", "heavily", "very", "lot", "much") else 1.0


def parse_steps(instruction: str) -> list[Step]:
    """Returns all steps in order; raises InvalidRequest with the supported changes if any part is not understood."""
    steps: list[Step] = []
    unknown: list[str] = []
    for clause in _split_clauses(instruction.lower()):
        names = _find_changes(clause)
        steps += [_STEPS[name](clause) for name in names]
        unknown += [word for word in _WORD.findall(_OBJECT.sub(" ", clause.text)) if word not in _KNOWN_WORDS]
    if not steps:
        raise _invalid_instruction("it names no known change")
    if unknown:
        raise _invalid_instruction(f"these words are unknown: “{' '.join(unknown[:_MAX_WORDS_SHOWN])}”")
    return steps


def _invalid_instruction(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"the instruction cannot be followed: {reason}",
        remedy=f"this model supports: {ABILITIES}",
        port="instruction",
    )


def _split_clauses(text: str) -> Iterator[Clause]:
    """Splits at "and", "then" and commas; a part without a change belongs to the preceding one."""
    for pattern, replacement in _SYNONYMS:
        text = re.sub(pattern, replacement, text)
    pending = ""
    for part in _CLAUSE_ENDS.split(text):
        if pending and _find_changes(Clause(pending)) and _find_changes(Clause(part)):
            yield Clause(pending)
            pending = part
        else:
            pending = f"{pending} {part}"
    yield Clause(pending)


def _find_changes(clause: Clause) -> list[str]:
    """Returns the changes that a clause names, each once, in text order."""
    names = list(dict.fromkeys(_KEYWORDS[word] for word in clause.words if word in _KEYWORDS))
    if not names and clause.has("turn") and clause.has("left", "right", "clockwise", "counterclockwise"):
        return ["rotate"]
    if not names and clause.number(r"\s*px"):
        return ["resize"]
    return [name for name in names if not (name == "rotate" and "flip" in names and clause.has("upsidedown"))]


def _step_without_numbers(name: str) -> Callable[[Clause], Step]:
    return lambda _clause: Step(name)


def _blur(clause: Clause) -> Step:
    return Step("blur", {"radius": clause.number() or 6 * clause.strength()})


def _sharpen(clause: Clause) -> Step:
    return Step("sharpen", {"amount": 1.5 * clause.strength()})


def _tone_step(name: str) -> Callable[[Clause], Step]:
    def read(clause: Clause) -> Step:
        is_reduction = clause.has("darker", "darken", "less", "reduce", "decrease", "lower", "weaker")
        percent = clause.number(r"\s*%") or 30 * clause.strength()
        return Step(name, {"factor": max(0.0, 1 - percent / 100) if is_reduction else 1 + percent / 100})

    return read


def _resize(clause: Clause) -> Step:
    is_smaller = clause.has("smaller", "shrink", "reduce", "half", "halve", "down")
    if pair := clause.pair():
        return Step("resize", {"width": pair[0], "height": pair[1]})
    if percent := clause.number(r"\s*%"):
        relative = clause.has(*_RELATIVE_WORDS) and not re.search(rf"\bto\s+{_NUMBER}\s*%", clause.text)
        change = 1 - percent / 100 if is_smaller else 1 + percent / 100
        return Step("scale", {"factor": change if relative else percent / 100})
    if clause.has("thumbnail"):
        return Step("side", {"longest": clause.number() or 256})
    if size := clause.number(r"\s*px") or (
        clause.number() if clause.has("width", "height", "wide", "high", "tall") else None
    ):
        side = "high" if clause.has("height", "high", "tall") else "wide" if clause.has("width", "wide") else "longest"
        return Step("side", {side: size})
    if not (is_smaller or clause.number() or clause.has("larger", "bigger", "enlarge", "double", "twice", "increase")):
        raise _invalid_instruction("the new size is missing")
    factor = clause.number() or 2.0
    return Step("scale", {"factor": 1 / factor if is_smaller else factor})


def _crop(clause: Clause) -> Step:
    if pair := clause.pair():
        return Step("crop", {"width": pair[0], "height": pair[1]})
    if re.search(rf"\bby\s+{_NUMBER}\s*%", clause.text):
        raise _invalid_instruction("“by” does not say what is to be left: say “to” with the share to keep")
    if percent := clause.number(r"\s*%"):
        return Step("crop", {"share": percent / 100})
    if clause.has("square"):
        return Step("square")
    raise _invalid_instruction("the size to crop to is missing")


def _rotate(clause: Clause) -> Step:
    """Returns degrees counter-clockwise; an angle without a direction means clockwise."""
    if clause.number() is None and clause.has("slightly", "little", "bit"):
        raise _invalid_instruction("the angle is missing")
    degrees = clause.number() or (180.0 if clause.has("upsidedown") else 90.0)
    return Step("rotate", {"degrees": degrees if clause.has("left", "counterclockwise") else -degrees})


def _flip(clause: Clause) -> Step:
    return Step("flip" if clause.has("vertical", "vertically", "upsidedown", "top", "bottom") else "mirror")


_STEPS: Mapping[str, Callable[[Clause], Step]] = {
    "grey": _step_without_numbers("grey"),
    "sepia": _step_without_numbers("sepia"),
    "invert": _step_without_numbers("invert"),
    "edges": _step_without_numbers("edges"),
    "sketch": _step_without_numbers("sketch"),
    "blur": _blur,
    "sharpen": _sharpen,
    "brightness": _tone_step("brightness"),
    "contrast": _tone_step("contrast"),
    "resize": _resize,
    "crop": _crop,
    "rotate": _rotate,
    "flip": _flip,
}
_KEYWORDS = {
    word: name
    for name, words in {
        "grey": "grey monochrome desaturate desaturated",
        "sepia": "sepia",
        "invert": "invert inverted negative",
        "edges": "edge edges outline outlines contour contours canny",
        "sketch": "sketch sketched pencil",
        "blur": "blur blurred blurry blurrier soften",
        "sharpen": "sharp sharpen sharpened sharper",
        "brightness": "bright brighter brighten brightness lighter lighten dark darker darken",
        "contrast": "contrast",
        "resize": "resize resized rescale scale scaled shrink enlarge enlarged smaller larger bigger half halve double "
        "twice thumbnail width height wide tall size",
        "crop": "crop cropped square",
        "rotate": "rotate rotated rotation spin tilt upsidedown degrees",
        "flip": "flip flipped mirror mirrored reflect",
    }.items()
    for word in words.split()
}
_KNOWN_WORDS = frozenset(load_vocabulary()["instruction_words"]) | set(_KEYWORDS)
