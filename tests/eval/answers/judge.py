"""Verdicts on answers: right, declined, or wrong but sure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.eval.answers.cases import Case, Expectation
from tests.eval.answers.checks import Answer, failures, plain

COMPLETED = "completed"

REPEATED_WORDS = 3
"""Length from which successive words of the request in an answer are a repetition of the request."""


class Verdict(StrEnum):
    """How good an answer is."""

    RIGHT = "right"
    DECLINED = "declined"
    """No right answer, and the user can see this: the run did not complete, or the answer states it or asks back."""
    WRONG = "wrong_but_sure"
    """Something wrong or something else, given as fact."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the failed parts of the check."""

    verdict: Verdict
    failures: tuple[str, ...] = ()


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_STEPS = re.compile(r"^\*\*How it was done\*\*\n+.*?(?=^\*\*|\Z)", re.MULTILINE | re.DOTALL)
_CONTENT = re.compile(r"^\s*>.*$|\*\*.*?\*\*|“[^”]*”", re.MULTILINE)

_DECLINES: Mapping[str, str] = {
    "en": r"could not be (done|read|decoded|understood|found|opened)|(was|were) not understood|nothing came of"
    r"|(is|are) not (possible|supported|offered|available|installed)|no(thing)? (expert|model|task|engine) "
    r"|\b(cannot|can't|could not|couldn't|unable to|not able to)\b|no (clear |certain )?answer (was )?(found|to)"
    r"|found no (clear |certain )?answer|matches no|asks for no task|states something|\bneeds? (a|an|the|some) "
    r"|please (send|attach|give|add|say|name|state)|(send|attach|add) (a|an|the) (file|text|picture|recording|document)"
    r"|which (one|file|of (these|them|the)) .*\?|what (is|should) .{0,40}\?$|(could|can|do|did) you mean"
    r"|not sure what|is (damaged|truncated|corrupted)|only reads",
    "de": r"kann (ich )?nicht|konnte nicht|nicht möglich|keine antwort|nicht verstanden"
    r"|bitte (senden|schicken|geben|nennen)|was soll|welche datei",
    "es": r"no (es|fue) posible|no (puedo|pude|se puede|se pudo)|ninguna respuesta|no (he encontrado|encontré)"
    r"|por favor,? (env|adjunt|ind)|qué archivo",
    "fr": r"(n'est|n'a) pas (pu|possible|été)|impossible|ne (peux|peut|puis) pas|aucune réponse|n'ai pas trouvé"
    r"|veuillez|quel fichier",
    "ko": r"할 수 없|수 없습니다|찾지 못|찾을 수 없|지원하지 않|이해하지 못|보내 ?주세요|첨부해|어느 파일",
    "zh": r"无法|不能|不支持|未找到|没有找到|找不到|不明白|请(发送|提供|附|说明|上传)|哪个文件",
}
"""Statements that something was not done, and questions back, by language."""

_GUESSES = re.compile(r"this is a guess|only \d+ ?% sure|many words of it may be wrong|may be wrong|not certain")
"""Statements that a result is doubtful; it is not given as fact."""

_ABSENCES: Mapping[str, str] = {
    "en": r"does(n't| not) (say|state|mention|contain|have|name|show|give|include)|shows? no|says nothing"
    r"|not (mentioned|stated)|no .{1,60} (was|were) found|(is|are|was) (not|no) .{0,20}(found|present|in it)"
    r"|(there is|there's|has|contains|have) no |nothing (was )?(found|to read)|no text",
    "de": r"steht nicht|kein(e|en)? ",
    "es": r"no (aparece|dice|hay|contiene)",
    "fr": r"ne (dit|contient|mentionne)|aucun",
    "ko": r"없습니다",
    "zh": r"没有",
}
"""Statements that a file does not have something: true only where the case expects it."""

_ABSENT = re.compile("|".join(_ABSENCES.values()))
_FALSE_ABSENCE = re.compile(r"\b(does not|doesn't) (say|state|mention)\b")
"""Absence as a fact, which is wrong even next to a statement that something was not done."""

_DECLINED = re.compile("|".join(_DECLINES.values()))


def judge(case: Case, state: str, answer: Answer) -> Judgement:
    """Judges one answer.

    Args:
        case: the request and its check.
        state: of the run.
        answer: its text and files.
    """
    text = without_steps(answer.text)
    if not case.may_repeat:
        text = without_repetition(text, case.request.text)
    answer = replace(answer, text=text)
    failed = tuple(failures(case.check, answer))
    incomplete = state != COMPLETED
    declined = incomplete or is_declined(text)
    match case.expectation:
        case Expectation.ANSWER if not failed:
            verdict = Verdict.DECLINED if incomplete else Verdict.RIGHT
        case Expectation.PARTIAL if not failed:
            verdict = Verdict.RIGHT if declined else Verdict.WRONG
        case Expectation.ABSENT if declined or _ABSENT.search(answer.plain):
            verdict = Verdict.WRONG if failed else Verdict.RIGHT
        case Expectation.DECLINE if declined or (case.check and not failed):
            verdict = Verdict.RIGHT
        case Expectation.ANSWER | Expectation.PARTIAL if _FALSE_ABSENCE.search(answer.plain):
            verdict = Verdict.WRONG
        case _:
            verdict = Verdict.DECLINED if declined or _is_guess(answer, failed) else Verdict.WRONG
    return Judgement(verdict, () if verdict is Verdict.RIGHT else failed)


def _is_guess(answer: Answer, failed: Sequence[str]) -> bool:
    """Whether an answer calls its result doubtful; this excuses no missing file, which a guess cannot replace."""
    return _GUESSES.search(answer.plain) is not None and not any("file" in one.partition(":")[0] for one in failed)


def without_steps(answer: str) -> str:
    """Removes the list of steps, whose model names, times and file sizes are no answers."""
    return _STEPS.sub("", answer)


def without_repetition(answer: str, request: str) -> str:
    """Removes what repeats at least REPEATED_WORDS successive words of the request, such as the question."""
    asked = [word.casefold() for word in _WORD.findall(request)]
    sequences = {tuple(asked[start : start + REPEATED_WORDS]) for start in range(len(asked) - REPEATED_WORDS + 1)}
    words = list(_WORD.finditer(answer))
    texts = [word.group().casefold() for word in words]
    repeated: set[int] = set()
    for start in range(len(words) - REPEATED_WORDS + 1):
        if tuple(texts[start : start + REPEATED_WORDS]) in sequences:
            repeated.update(range(start, start + REPEATED_WORDS))
    for index in sorted(repeated, reverse=True):
        answer = answer[: words[index].start()] + answer[words[index].end() :]
    return answer


def is_declined(answer: str) -> bool:
    """Whether an answer states that something was not done, or asks back.

    Quoted and bold texts are results or parts of the request, which may contain such words.
    """
    return _DECLINED.search(plain(_CONTENT.sub(" ", answer))) is not None
