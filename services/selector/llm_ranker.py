"""Selects a model with an LLM where the ranking is not decisive, and parses its answer."""

import asyncio
import json
import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from typing import NamedTuple

import structlog

from services.common import call_context
from services.llm.client import LLM, LLMError, Usage
from services.selector.decisive_ranking import contenders, is_clear
from services.selector.llm_prompt import VERSION, Question, build_question, can_be_named, plain
from services.selector.query import SelectionQuery
from services.selector.selection import Controller, SelectedModel, Selection
from services.selector.selector import CANDIDATES, Selector
from services.selector.shared_cache import SharedCache

REASON_CHARACTERS = 300

_READ_CHARACTERS = 4_000
_LOOKS_ALIKE = 0.85
_PAIR = re.compile(
    r"""["']?\b(?P<key>id|reason)["']?\s*[:=]\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"?|'(?P<single>[^'\n]*)'?)""",
    re.IGNORECASE,
)
"""Fields of invalid JSON: single quotes, unquoted keys, superfluous commas, a missing end."""


class Answer(NamedTuple):
    """The model that an LLM chose, as it wrote the name."""

    named: str
    reason: str


def read(text: str, ids: Sequence[str]) -> Answer | None:
    """Parses the chosen model; the last object counts, since some LLMs reason first. None if no model is named.

    Args:
        text: reply of an LLM.
        ids: of the candidates; a text without an object may mention one of them.
    """
    text = text[-_READ_CHARACTERS:]
    found = list(_objects(text)) or list(_pairs(text)) or list(_mentioned(text, ids))
    return found[-1] if found else None


def repaired(named: str, ids: Sequence[str]) -> str | None:
    """The one candidate that matches a name: exactly, else by letters and digits, last part, or similarity."""
    if named in ids:
        return named
    for key in (_letters, _last_part):
        if found := [candidate for candidate in ids if key(candidate) == key(named)]:
            return found[0] if len(found) == 1 else None
    by_letters = {_letters(candidate): candidate for candidate in ids}
    near = get_close_matches(_letters(named), by_letters, n=2, cutoff=_LOOKS_ALIKE)
    return by_letters[near[0]] if len(near) == 1 else None


def _objects(text: str) -> Iterator[Answer]:
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = {}, start
        if isinstance(value.get("id"), str):
            yield _answer(value["id"], value.get("reason"))
        else:
            end = start + 1  # the object may be nested deeper
        start = text.find("{", end)


def _pairs(text: str) -> Iterator[Answer]:
    fields = {match["key"].lower(): match["double"] or match["single"] or "" for match in _PAIR.finditer(text)}
    if "id" in fields:
        yield _answer(fields["id"], fields.get("reason"))


def _mentioned(text: str, ids: Sequence[str]) -> Iterator[Answer]:
    named = [candidate for candidate in ids if candidate in text]
    whole = [candidate for candidate in named if not any(candidate != other and candidate in other for other in named)]
    if len(whole) == 1:
        yield _answer(whole[0], None)


def _answer(named: str, reason: object) -> Answer:
    return Answer(named.strip(), plain(reason, REASON_CHARACTERS) if isinstance(reason, str) else "")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _last_part(name: str) -> str:
    return _letters(name.rstrip("/").rpartition("/")[2])


log = structlog.get_logger(__name__)

DESCRIBED = 5

_CACHED_SECONDS, _CACHED = 60.0, 1024
_TIMEOUT_SHARE = 0.5
"""Share of the caller's remaining time: the rest is for the fallback and the task."""


@dataclass(frozen=True)
class _LlmChoice:
    """The choice of an LLM."""

    model: str
    """ID of the chosen candidate; empty if it chose none of them."""
    reason: str
    llm_model: str
    usage: Usage


class LlmRanker:
    """Selects among the best ranked models with an LLM.

    Args:
        llm: client of the LLM.
        selector: ranks the models.
        described: number of candidates in the prompt.
    """

    def __init__(self, llm: LLM, selector: Selector, *, described: int = DESCRIBED) -> None:
        self._llm = llm
        self._selector = selector
        self._described = described
        self._choices = SharedCache[Hashable, _LlmChoice](
            lambda llm_choice: bool(llm_choice.model), seconds=_CACHED_SECONDS, size=_CACHED
        )

    async def choose(self, query: SelectionQuery, seconds: float | None) -> Selection:
        """Selects models for a task: the LLM's choice first, the others by rank.

        Args:
            query: the selection query.
            seconds: the caller's remaining time; None: no limit.

        Raises:
            ServiceError: those of Selector.choose(); never because of the LLM.
        """
        limit = query.limit or CANDIDATES
        choice = self._selector.choose(replace(query, limit=max(limit, self._described)) if limit > 0 else query)
        candidates = _distinct(contenders(choice))[: self._described]
        if choice.controller is Controller.RANK and len(candidates) > 1:
            choice = await self._ask_llm(choice, query, candidates, seconds)
        return replace(choice, chosen=choice.chosen[:limit])

    async def _ask_llm(
        self, choice: Selection, query: SelectionQuery, candidates: Sequence[SelectedModel], seconds: float | None
    ) -> Selection:
        if is_clear(choice.spec, query, candidates):
            return replace(choice, reason=f"{choice.reason}; the ranking is decisive, so no LLM was called")
        question = build_question(choice.spec, query, candidates, self._budget, self._llm.count_tokens)
        if question is None:
            return replace(choice, fell_back_because="no two candidates fit into the LLM's context")
        key = self._key(query, question)
        try:
            async with asyncio.timeout(None if seconds is None else _TIMEOUT_SHARE * seconds):
                llm_choice, is_charged = await self._choices.get(key, lambda: self._call(question))
        except TimeoutError:
            return replace(choice, llm_model=self._llm.model, fell_back_because="the LLM had not answered in time")
        except LLMError as error:
            return replace(choice, llm_model=self._llm.model, fell_back_because=str(error))
        return _decided(choice, llm_choice if is_charged else replace(llm_choice, usage=Usage()))

    @property
    def _budget(self) -> int:
        return self._llm.context_tokens - self._llm.answer_tokens

    def _key(self, query: SelectionQuery, question: Question) -> Hashable:
        """All that a choice depends on, and the tenant: response times must reveal nothing about other tenants."""
        query_key = replace(
            query, avoid=(), limit=0, seed="", source=_digest(query.source), request=_digest(query.request)
        )
        return (self._selector.revision, call_context.current().tenant, query_key, tuple(question.ids))

    async def _call(self, question: Question) -> _LlmChoice:
        if question.scale < 1:
            log.info("texts shortened for the selection prompt", scale=question.scale, candidates=len(question.ids))
        reply = await self._llm.complete(question.messages, schema=question.schema)
        answer = read(reply.text, question.ids)
        self._llm.record_answer(valid=answer is not None)
        model = repaired(answer.named, question.ids) if answer else None
        if not model:
            log.warning("LLM chose no candidate", llm_model=reply.model, readable=answer is not None)
        return _LlmChoice(model or "", answer.reason if answer else "", reply.model, reply.usage)


def _digest(text: str) -> str:
    """Replaces a user's text where it must not be stored."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _distinct(ranked: Sequence[SelectedModel]) -> Sequence[SelectedModel]:
    """The best ranked model of each ID, without IDs that cannot be shown to an LLM."""
    first = {chosen.offer.card.id: chosen for chosen in reversed(ranked)}
    return [chosen for chosen in ranked if chosen is first[chosen.offer.card.id] and can_be_named(chosen.offer.card.id)]


def _decided(choice: Selection, llm_choice: _LlmChoice) -> Selection:
    with_llm = replace(choice, llm_model=llm_choice.llm_model, usage=llm_choice.usage, version=VERSION)
    if not llm_choice.model:
        return replace(with_llm, fell_back_because="the LLM's answer names none of the candidates")
    position = next(i for i, chosen in enumerate(choice.chosen) if chosen.offer.card.id == llm_choice.model)
    best = choice.chosen[position]
    best = replace(best, reason=llm_choice.reason or best.reason)
    return replace(
        with_llm,
        controller=Controller.LLM,
        chosen=[best, *choice.chosen[:position], *choice.chosen[position + 1 :]],
        reason=best.reason,
        confidence=0.0,
    )
