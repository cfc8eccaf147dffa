"""Notes on requests for more than the planned tasks do: a part of a file, a sum, a comparison, a size with a format.

Such a task succeeds, and its result would be taken for the answer.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from services.planner.embedded.media import CONVERTING
from services.planner.embedded.note_texts import beyond_tasks, compared, converted_only, counted_each, whole_only
from services.planner.embedded.resources import Resource
from services.planner.embedded.wording import Wording
from services.planner.plan import Note, Task
from services.planner.plan_check import references

_WHOLE = frozenset(
    (
        "summarization",
        "image-to-text",
        "text-to-speech",
        "automatic-speech-recognition",
        "text-classification",
        "token-classification",
        "text-statistics",
        "translation",
    )
)
"""Tasks that take all of a text, recording or document."""
_PART = re.compile(
    r"\b(?:first|second|third|fourth|last|next)\s+(?:\w+\s+)?"
    r"(?:pages?|paragraphs?|sections?|chapters?|sentences?|lines?|words?|half|minutes?|seconds?)\b"
    r"|\b(?:page|paragraph|section|chapter|line)s?\s+\d+\b|\bbackwards?\b"
)
_COUNTING = frozenset(
    ("object-detection", "text-statistics", "page-count", "question-answering", "document-question-answering")
)
_IN_TOTAL = re.compile(
    r"\b(?:in\s+(?:total|all|sum)|altogether|all\s+together|combined|overall)\b|\b(?<!put )(?<!them )together\W*$"
    r"|\b(?:total|sum)\s+(?:of|for)\s+(?:the|these|those|both|all|my|our)\s+(?:(?:two|three|four)\s+)?\w+s\b"
)
_SORTING = frozenset(("text-classification", "object-detection", "image-classification"))
_HOW_MANY_FILES = re.compile(
    r"\bhow\s+many\s+(?:of\s+(?:these|those|them|the|my|our)\b|(?:\w+\s+)?(?:pictures|photos|images|texts|files|reviews"
    r"|letters|messages|e?-?mails|comments|recordings)\b)"
)
_MERGED = re.compile(
    r"\b(?:in|into|to|as)\s+(?:one|a\s+single)\s+(?:\w+\s+)?(?:file|pdf|document|text|picture|image|recording|summary|list)\b"
)
_COMPARING = frozenset(("calculation", "question-answering", "document-question-answering", "sentence-similarity"))
_COMPARED = re.compile(
    r"\bthe\s+(?:(?:long|short|bigg|small|larg|old|new|lat|cheap|bright|dark|high|low|loud|quiet)(?:er|est)"
    r"|earli(?:er|est)|better|best|worse|worst|(?:more|most|less|least)\s+\w+)"
    r"(?:\s+(?:one|of|text|file|picture|photo|image|recording|letter|review|document|article)\b|\s+(?:aloud|out)\b|\W*$)"
)
_COUNTED_PARTS = re.compile(
    r"\b(?:the|a)\s+(?:word|name|letter|phrase)\b|\b(?:vowels?|consonants?|commas?|capitals?|capital\s+letters?)\b"
)
_CUTTING = "image-segmentation"
_SIDES = re.compile(r"\b(?:top|bottom|left|right|corners?|borders?|sides?)\b")
_BACKGROUND = re.compile(
    r"\b(?:make|turn|paint|colou?r|change|replace|swap|blur)\b.{0,20}\bbackground\b(?!\s+transparent)"
)
"""Orders to put something else behind a subject, which is only cut out."""
_MORE_THAN_FORMAT = re.compile(
    r"\d\s*(?:px|pixels?|%|per\s?cent|dpi|[km]b\b|kbit|kbps|k?hz|bits?\b|x\s*\d)|\b(?:half|twice|double)\s+(?:the|its|as)\b"
    r"|\b(?:smaller|larger|bigger|width|height|wide|brighter|darker|grey|gray|black\s+and\s+white|rotated?|cropped"
    r"|resized?|transparent|mono|stereo|louder|quieter)\b"
)


def several(resources: Sequence[Resource], wording: Wording) -> bool:
    """Whether there are several files or texts, so that they can be compared or added up."""
    contents = [payload for payload in wording.payloads if not payload.asks]
    return sum(not one.age for one in resources) + len(contents) > 1


def limit_notes(
    tasks: Sequence[Task], masked: Mapping[str, str], resources: Sequence[Resource], *, has_several: bool
) -> Iterator[Note]:
    """Yields notes on what the tasks of a plan leave out of the words that they come from.

    Args:
        tasks: of the plan.
        masked: the words without content, by the source of tasks.
        resources: the files and texts that the request may mean.
        has_several: whether there are several of them.
    """
    used = {reference.task_id for task in tasks for reference in references(task)}
    is_single = sum(not one.age for one in resources) == 1
    for source in dict.fromkeys(task.source for task in tasks):
        words = masked.get(source, "")
        own = [task for task in tasks if task.source == source]
        final = {task.task for task in own if task.id not in used}
        is_part = is_single and _PART.search(words) and final & _WHOLE
        if is_part or _is_part_of_content(words, final):
            yield whole_only(source)
        if has_several and _is_sum(words, final):
            yield counted_each(source)
        if (has_several and _MERGED.search(words)) or (_CUTTING in final and _BACKGROUND.search(words)):
            yield beyond_tasks(source)
        if has_several and len(own) > 1 and not final & _COMPARING and _COMPARED.search(words):
            yield compared(source)
        if {task.task for task in own} <= CONVERTING and _MORE_THAN_FORMAT.search(words):
            yield converted_only(source)


def _is_part_of_content(words: str, tasks: Collection[str]) -> bool:
    """Whether words are counted of which text statistics do not tell, or one side of a picture is cut out."""
    counts = "text-statistics" in tasks and _COUNTED_PARTS.search(words)
    return bool(counts or (_CUTTING in tasks and _SIDES.search(words)))


def _is_sum(words: str, tasks: Collection[str]) -> bool:
    adds_up = not _COUNTING.isdisjoint(tasks) and _IN_TOTAL.search(words)
    return bool(adds_up or (not _SORTING.isdisjoint(tasks) and _HOW_MANY_FILES.search(words)))
