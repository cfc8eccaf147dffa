"""Cases: requests with files, what is expected in words, and a check of the answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "answers"

LANGUAGES = ("en", "de", "es", "fr", "ko", "zh")


class CaseSet(StrEnum):
    """A file of cases."""

    DEVELOPMENT = "development"
    HELD_OUT = "held_out"
    """Only totals of it are reported."""
    HELD_OUT_LATER = "held_out_later"
    """Likewise; written when the rules were, by authors who did not know them."""

    @property
    def is_held_out(self) -> bool:
        return self is not CaseSet.DEVELOPMENT


class Expectation(StrEnum):
    """The right reaction to a request."""

    ANSWER = "answer"
    """The check holds and nothing is left undone."""
    ABSENT = "absent"
    """The file does not have what the request asks for: the answer states this, or declines."""
    DECLINE = "decline"
    """No expert can do it: the answer states this or asks back. An answer that passes a check is right, too."""
    PARTIAL = "partial"
    """A part can be done: the check holds for it, and the answer states what could not be done."""


class BadCases(Exception):
    """Cases or their files cannot be used; the message states where and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """A message and the names of its files."""

    text: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A request with the check of its answer.

    Args:
        id: unique in both sets.
        kind: how the request is written or what is special about it, such as typo.
        task: task of the lite expert that the request is about, or conversation or none.
        language: of the request, as a tag.
        before: earlier requests of the same conversation, oldest first.
        expected: the right answer in words, for people who read the case.
        check: see checks.py.
    """

    id: str
    kind: str
    task: str
    language: str
    request: Request
    expected: str
    expectation: Expectation
    check: Mapping[str, Any]
    before: tuple[Request, ...] = ()
    may_repeat: bool = False
    """Whether the request itself contains the answer, such as a text and a question about it."""

    @property
    def files(self) -> list[str]:
        """Names of the files of all its requests."""
        return [name for request in (*self.before, self.request) for name in request.files]


def read(case_set: CaseSet, folder: Path = DATA) -> list[Case]:
    """Reads the cases of a set.

    Raises:
        BadCases: a line is invalid.
    """
    path = folder / f"{case_set}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_case(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _case(line: str, place: str) -> Case:
    try:
        entry = json.loads(line)
        return Case(
            id=entry["id"],
            kind=entry["kind"],
            task=entry["task"],
            language=entry["language"],
            request=_request(entry),
            expected=entry["expected"],
            expectation=Expectation(entry.get("expect", Expectation.ANSWER)),
            check=entry["check"],
            before=tuple(map(_request, entry.get("before", ()))),
            may_repeat=bool(entry.get("may_repeat", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadCases(f"{place} is not a case ({error!r}): write it as tests/eval/data/README.md states") from error


def _request(entry: Mapping[str, Any]) -> Request:
    files: Sequence[str] = entry["files"]
    return Request(entry["request"], tuple(files))
