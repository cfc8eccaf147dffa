"""Parses an image-editing instruction into ordered steps; any remainder is an error."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from experts.lite.text_processing import load_vocabulary
from services.common.errors import InvalidRequest

ABILITIES = (
    "grey or black and white, sepia, invert, edges, pencil sketch, blur, sharpen, brighter or darker, more or less "
    "contrast, resize (to 800x600, to 50%, to 800 pixels wide, half the size), crop (to 800x600, to a square, "
    "to the left half), cut off (20 pixels on all sides, the top third), rotate (by 90 degrees, left, right), "
    "flip or mirror (horizontally, vertically)"
)

_SYNONYMS = (
    (r"\S+\.(?:png|jpe?g|webp|gif|bmp|tiff?|heic|heif|avif|pdf)\b", " "),
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (
        r"\b(\d+)\s*(?:px|pixels?)?\s*(?:wide|in width)\s*(?:,|and|by|x)\s*(\d+)\s*(?:px|pixels?)?\s*(?:high|tall)\b",
        r"resize \1x\2",
    ),
    (r"\bwidth\s*(?:of|to|=|:)?\s*(\d+)\W{0,3}(?:and\s+)?(?:px\W+)?height\s*(?:of|to|=|:)?\s*(\d+)\b", r"resize \1x\2"),
    (r"\b(?:too|less|not (?:so|as|that)) (?:bright|light)\b", "darker"),
    (r"\b(?:too|less|not (?:so|as|that)) dark\b", "brighter"),
    (r"\bnot too (?:much|strongly|heavily)\b", "slightly"),
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
    (
        (
            r"\b(?:(?:to|at|by)\s+)?(?:a|one)[ -](third|quarter|fifth|tenth)\s+"
            r"(?:of\s+(?:its|the|their)\s+(?:\w+\s+)?|the\s+)sizes?\b"
        ),
        r"1/\1 size",
    ),
    (r"\b(it|that|this|they|there|here|i|we|you)['’](?:s|re|m|ve|d|ll)\b", r"\1"),
    (
        r"\b(?:throw|discard|drop|lose|remove|delete|cut)\s+(?:away\s+|off\s+)?the\s+(?:rest|other\s+\w+)(?:\s+(?:away|off))?\b",
        " ",
    ),
    (
        r"\b(three|four|five|ten) times (?:as (?:big|large|wide|tall|high)|the size|larger|bigger)\b",
        r"\1 times the size",
    ),
    (
        (
            r"\b(turn(?:ed)?|rotated?)\b(.{0,30}?)\b(?:by |through )?(?:a|one)[ -]quarter(?:[ -](?:of a )?turn)?\b"
            r"|\ba? ?quarter[ -]turn\b"
        ),
        r"rotate \2 90 degrees ",
    ),
    (r"\b(?:a )?half[ -](?:a )?turn\b", "rotate 180 degrees"),
    (r"\b(?:is|are|be|was) left(?: over)?\b|\bleft over\b", "remains"),
    (r"\bper\s?cent\b", "%"),
    (r"°|\bdeg\b|\bdegrees?\b", " degrees"),
    (r"(?<=\d)\s*(?:px|pixels?)\b", " px"),
    (r"(?<=\d)\s*(?:x|×|by)\s*(?=\d)", "x"),
)
_NUMBER = r"(\d+(?:\.\d+)?)"
_FRACTIONS = {"third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
_COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
_CLAUSE_ENDS = re.compile(r"[,;.!?:\n](?!\d)|\b(?:and|then)\b")
_NEGATION = re.compile(
    r"\b(?:don'?t|don’t|do not|doesn'?t|does not|never|no need to|please not|rather than|instead of)\b[^,;.!?:\n]*?"
    r"(?=[,;.!?:\n]|\b(?:and|but|just|only)\b|$)"
    r"|\bwithout (?:any )?\w+ing\b[^,;.!?:\n]*?(?=[,;.!?:\n]|\b(?:and|but|then)\b|$)"
)
"""What is not to be done."""
_PROPORTIONS = re.compile(
    r"\b(?:keep(?:ing)?|preserv(?:e|ing)|maintain(?:ing)?|retain(?:ing)?|with)\s+(?:the|its|their|same|original|correct|\s)*"
    r"(?:proportions?|(?:aspect\s+)?ratio)(?:\s+(?:the\s+same|as\s+(?:it|they)\s+(?:is|are)|intact|unchanged))?\b"
    r"|\bproportional(?:ly)?\b|\b(?:to\s+)?fits?\s+(?:with)?in(?:to|side)?\b|\bat\s+most\b|\bno\s+(?:larger|bigger)\s+than\b"
)
_PURPOSE = re.compile(
    r"\bfor\s+(?:(?:the|a|an|my|our|your|his|her|their|this)\s+)?(?!back|fore|sky|face|text|rest|part|area)[a-z][\w'’-]*"
    r"(?:\s+(?!by|to|at|with|and|then)[a-z][\w'’-]*){0,4}\s*(?=[,;.!?:\n]|\b(?:and|i|we|please|make|can|could|you)\b|$)"
    r"|\b(?:because|since|so\s+(?:that\s+)?(?:it|they|we|i|this)\s+(?:fits?|can|is|are|looks?|match\w*|does|works?))\b[^;.!?:\n]*"
)
"""What the picture is for, and why."""
_FRACTION = r"(?:half|third|quarter|fifth|two[ -]thirds|three[ -]quarters|\d+(?:\.\d+)?\s*%)"
_SIDE = r"(?:left|right|top|bottom|upper|lower|middle|cent(?:er|re|ral)|first|second|other)"
_PORTION = re.compile(
    rf"\b{_SIDE}(?:[ -]?(?:hand )?(?:most )?{_SIDE})?(?:[ -]hand)?[ -]+(?:{_FRACTION}|corner|part|side|quadrant)(?!\w)"
    rf"|(?<![\w.]){_FRACTION}\s+(?:off\s+|from\s+|of\s+|at\s+|on\s+)+(?:the\s+|its\s+)?{_SIDE}(?:\s+side)?\b"
)
"""A part of the picture by its position."""
_ONLY = re.compile(r"\b(?:only|just|keep|keeps|remains?|stays?|to|show)\b")
_CUT_OFF = re.compile(r"\b(?:off|away|out|remove[sd]?|delete|drop|without|lose|get rid|cut|chop|trim|minus)\b")
_MARGIN = re.compile(
    rf"{_NUMBER}\s*(%|px)\s+(?:(?:off|from|of|at|on)\s+)+"
    rf"(?:(?P<all>(?:all(?:\s+four)?|each|every|the|both|its)\s+(?:sides?|edges?|borders?)|all\s+around)|(?:the\s+|its\s+)?(?P<side>{_SIDE}))"
)
_OBJECT = re.compile(r"\b(?:of|showing|called|named)\s+(?:[\w'’-]+\s*)+")
_NOUNS = "|".join(load_vocabulary()["picture_nouns"])
_PICTURE = re.compile(
    rf"\b(?:this|these|that|those|the|my|our|your|his|her|their|both|all|a|an|each)\s+(?:(?!{_NOUNS})[a-z][\w-]*\s+){{0,3}}?(?:{_NOUNS})s?(?![\w'’])"
)
"""What the picture as a whole is called, which may be preceded by adjectives."""
_THING = re.compile(r"\b(?:this|that|these|those|my|our|both)\s+(?:[a-z][\w-]*\s+)?[a-z][\w-]*(?!\w|['’]s)")
_WORD = re.compile(r"[^\W\d_]+")
_MAX_WORDS_SHOWN = 8
_WHOLE = frozenset(("rotate", "flip", "crop", "resize"))
"""Changes of the whole picture, whatever it shows, if sizes are stated."""
_SMALLER_WORDS = ("smaller", "shrink", "reduce", "half", "halve", "down")
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
        return _WORD.findall(_PORTION.sub(" portion ", self.text))

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
    text = instruction.lower()
    for pattern, replacement in _SYNONYMS:
        text = re.sub(pattern, replacement, text)
    refused = {name for phrase in _NEGATION.findall(text) for name in _find_changes(Clause(phrase))}
    text = _PURPOSE.sub(" ", _NEGATION.sub(" ", text))
    keeps_proportions = bool(_PROPORTIONS.search(text))
    text = _PROPORTIONS.sub(" ", text)
    steps: list[Step] = []
    unknown: list[str] = []
    clauses = list(_split_clauses(text))
    has_size = any("resize" in _find_changes(clause) and _states_size(clause) for clause in clauses)
    for clause in clauses:
        names = [name for name in _find_changes(clause) if name not in refused]
        if has_size and not _states_size(clause):  # "make it smaller, 300 pixels wide" is one change
            names = [name for name in names if name != "resize"]
        steps += [_STEPS[name](clause) for name in names]
        unknown += _unknown_words(clause, names)
    if not steps:
        raise _invalid_instruction("it names no known change")
    if unknown:
        raise _invalid_instruction(f"these words are unknown: “{' '.join(unknown[:_MAX_WORDS_SHOWN])}”")
    if keeps_proportions:
        steps = [Step("fit", step.numbers) if step.name == "resize" else step for step in steps]
    return [step for step, before in zip(steps, [None, *steps], strict=False) if step != before or step.name in _WHOLE]


def _states_size(clause: Clause) -> bool:
    return clause.pair() is not None or clause.number("") is not None or clause.has("half", "halve", "double", "twice")


def _unknown_words(clause: Clause, names: Collection[str]) -> list[str]:
    """Returns the words of a clause that are neither known nor the name of the picture."""
    text = _PICTURE.sub(" ", _OBJECT.sub(" ", _PORTION.sub(" ", clause.text)))
    if "crop" in names:
        text = _CUT_OFF.sub(" ", text)
    has_size = clause.pair() or clause.number(r"\s*px") or clause.number(r"\s*%") or "resize" not in names
    if names and _WHOLE.issuperset(names) and has_size:
        text = _THING.sub(lambda thing: " ".join(word for word in thing[0].split() if word in _KNOWN_WORDS), text)
    return [word for word in _WORD.findall(text) if word not in _KNOWN_WORDS]


def _invalid_instruction(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"the instruction cannot be followed: {reason}",
        remedy=f"this model supports: {ABILITIES}",
        port="instruction",
    )


def _split_clauses(text: str) -> Iterator[Clause]:
    """Splits at "and", "then" and commas; a part without a change belongs to the preceding one."""
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
    if (not names and clause.number(r"\s*px")) or (clause.pair() and not {"resize", "crop"} & {*names}):
        names.append("resize")
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
    if clause.has("half") and clause.has("cut", "split", "divide") and not clause.has("size"):
        raise _invalid_instruction("it does not say which half is to be left")
    if pair := clause.pair():
        return Step("resize", {"width": pair[0], "height": pair[1]})
    if factor := _scale_factor(clause):
        return Step("scale", {"factor": factor})
    if clause.has("thumbnail"):
        return Step("side", {"longest": clause.number() or 256})
    if size := clause.number(r"\s*px") or (
        clause.number() if clause.has("width", "height", "wide", "high", "tall") else None
    ):
        side = "high" if clause.has("height", "high", "tall") else "wide" if clause.has("width", "wide") else "longest"
        return Step("side", {side: size})
    is_smaller = clause.has(*_SMALLER_WORDS)
    if not (is_smaller or clause.number() or clause.has("larger", "bigger", "enlarge", "double", "twice", "increase")):
        raise _invalid_instruction("the new size is missing")
    factor = clause.number() or 2.0
    return Step("scale", {"factor": 1 / factor if is_smaller else factor})


def _scale_factor(clause: Clause) -> float | None:
    """Returns the factor that a fraction, a count or a percentage states."""
    is_smaller = clause.has(*_SMALLER_WORDS)
    if fraction := re.search(rf"\b1/({'|'.join(_FRACTIONS)})\b", clause.text):
        return 1 / _FRACTIONS[fraction[1]]
    if times := re.search(rf"\b({'|'.join(_COUNTS)}) times\b", clause.text):
        return 1 / _COUNTS[times[1]] if is_smaller else _COUNTS[times[1]]
    if percent := clause.number(r"\s*%"):
        relative = clause.has(*_RELATIVE_WORDS) and not re.search(rf"\bto\s+{_NUMBER}\s*%", clause.text)
        change = 1 - percent / 100 if is_smaller else 1 + percent / 100
        return change if relative else percent / 100
    return None


def _crop(clause: Clause) -> Step:
    if margin := _MARGIN.search(clause.text):
        return _trim(margin)
    if portion := _PORTION.search(clause.text):
        return _crop_to_portion(clause, portion[0])
    if pair := clause.pair():
        return Step("crop", {"width": pair[0], "height": pair[1]})
    if re.search(rf"\bby\s+{_NUMBER}\s*%", clause.text):
        raise _invalid_instruction("“by” does not say what is to be left: say “to” with the share to keep")
    if percent := clause.number(r"\s*%"):
        return Step("crop", {"share": percent / 100})
    if clause.has("square"):
        return Step("square")
    if ratio := re.search(r"(?<!\d)(\d{1,2}):(\d{1,2})(?!\d)", clause.text):
        return Step("ratio", {"width": float(ratio[1]) or 1, "height": float(ratio[2]) or 1})
    raise _invalid_instruction("the size to crop to is missing")


def _trim(margin: re.Match[str]) -> Step:
    """Cuts a margin off one side, or off all of them."""
    unit = "px" if margin[2] == "px" else "share"
    size = float(margin[1]) / (1 if unit == "px" else 100)
    sides = ("left", "right", "top", "bottom") if margin["all"] else _sides(margin["side"])
    if not sides:
        raise _invalid_instruction("the side to cut is missing")
    return Step(f"trim-{unit}", dict.fromkeys(sides, size))


def _crop_to_portion(clause: Clause, portion: str) -> Step:
    """Crops to a part such as "left half", or cuts it off."""
    others = [name for name in _find_changes(clause) if name != "crop"]
    cuts_off = bool(_CUT_OFF.search(clause.text)) and not re.search(r"\b(?:only|keep|remains?)\b", clause.text)
    if others or not (cuts_off or _ONLY.search(clause.text)):
        raise _invalid_instruction("a part of the picture can only be kept or cut off: say which of them")
    sides = _sides(portion)
    share = _share(portion, is_corner=len(sides) > 1)
    if share is None or (cuts_off and len(sides) != 1):
        raise _invalid_instruction("the size of the part is missing")
    if not sides:
        if cuts_off:
            raise _invalid_instruction("the middle cannot be cut out")
        thirds = {"left": (1 - share) / 2, "right": (1 - share) / 2} if clause.has("column", "vertical") else {}
        return Step("trim-share", thirds or dict.fromkeys(("left", "right", "top", "bottom"), (1 - share) / 2))
    if cuts_off:
        return Step("trim-share", {sides[0]: share})
    return Step("trim-share", {_OPPOSITE[side]: 1 - share for side in sides})


def _sides(words: str) -> list[str]:
    names = {"upper": "top", "lower": "bottom"}
    return [names.get(side, side) for side in re.findall(r"left|right|top|bottom|upper|lower", words)]


def _share(words: str, *, is_corner: bool) -> float | None:
    """Returns the share of each side that a part has; a quarter in a corner is half of both sides."""
    if is_corner:
        return 0.5 if re.search(r"quarter|corner|quadrant", words) else None
    if percent := re.search(rf"{_NUMBER}\s*%", words):
        return float(percent[1]) / 100
    return next((share for name, share in _SHARES.items() if re.search(name, words)), None)


def _rotate(clause: Clause) -> Step:
    """Returns degrees counter-clockwise; an angle without a direction means clockwise."""
    if clause.number() is None and clause.has("slightly", "little", "bit"):
        raise _invalid_instruction("the angle is missing")
    degrees = clause.number() or (180.0 if clause.has("upsidedown") else 90.0)
    return Step("rotate", {"degrees": degrees if clause.has("left", "counterclockwise") else -degrees})


def _flip(clause: Clause) -> Step:
    if clause.has("axis"):
        return Step("flip" if clause.has("horizontal") else "mirror")
    return Step("flip" if clause.has("vertical", "vertically", "upsidedown", "top", "bottom") else "mirror")


_OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
_SHARES = {
    r"two[ -]thirds": 2 / 3,
    r"three[ -]quarters": 3 / 4,
    "half": 1 / 2,
    "third": 1 / 3,
    "quarter": 1 / 4,
    "fifth": 1 / 5,
}
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
        "crop": "crop cropped cropping square portion trim",
        "rotate": "rotate rotated rotation spin tilt upsidedown degrees",
        "flip": "flip flipped mirror mirrored reflect",
    }.items()
    for word in words.split()
}
_KNOWN_WORDS = frozenset(load_vocabulary()["instruction_words"]) | set(_KEYWORDS)
