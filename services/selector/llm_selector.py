"""Selects a model with an LLM where the ranking is not decisive.

The first model is decisive if, compared with every other model that may be first, two things hold:

- its description fits at least as well: it is the same model at another expert; or it matches a term of the task's own
  text that the kind of task does not contain, and all that the other matches, and supports the languages if the other
  does;
- it is better by measurement: the other is dormant or unreachable while the first is reachable; or the first is loaded
  and at least twice as fast. Its time is its median, at least 50 ms, times one more than its shortest queue; and its
  95th percentile must not be longer.

Where nothing is measured, or no term distinguishes the models, an LLM decides better.
"""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import structlog

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common import call_context
from services.llm.client import LLM, LLMError, Usage
from services.selector.llm_prompt import (
    VERSION,
    Question,
    build_question,
    can_be_named,
    match_candidate,
    read_answer,
)
from services.selector.ranking import PROMPT_SECONDS, Readiness, stemmed
from services.selector.selection import Controller, Mode, SelectedModel, Selection, SelectionQuery
from services.selector.selector import CANDIDATES, Selector
from services.selector.single_flight_cache import SingleFlightCache

log = structlog.get_logger(__name__)

DESCRIBED = 5
"""Default number of candidates in the prompt."""

_CACHED_SECONDS, _CACHED = 60.0, 1024
_TIMEOUT_SHARE = 0.5
"""Share of the caller's remaining time: the rest is for the fallback and the task."""

FASTER = 2.0
"""How many times as fast the first model must be."""

_REACHABLE = {Readiness.READY, Readiness.LOADABLE}


@dataclass(frozen=True)
class _LlmChoice:
    """The choice of an LLM."""

    model: str
    """ID of the chosen candidate; empty if it chose none of them."""
    reason: str
    llm_model: str
    usage: Usage


class LlmSelector:
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
        self._choices = SingleFlightCache[Hashable, _LlmChoice](
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
        selection = self._selector.choose(replace(query, limit=max(limit, self._described)) if limit > 0 else query)
        candidates = _distinct(contenders(selection))[: self._described]
        if selection.controller is Controller.RANK and len(candidates) > 1:
            selection = await self._select_with_llm(selection, query, candidates, seconds)
        return replace(selection, chosen=selection.chosen[:limit])

    async def _select_with_llm(
        self, selection: Selection, query: SelectionQuery, candidates: Sequence[SelectedModel], seconds: float | None
    ) -> Selection:
        if is_decisive(selection.spec, query, candidates):
            return replace(selection, reason=f"{selection.reason}; the ranking is decisive, so no LLM was called")
        question = build_question(selection.spec, query, candidates, self._budget, self._llm.count_tokens)
        if question is None:
            return replace(selection, fell_back_because="no two candidates fit into the LLM's context")
        key = self._key(query, question)
        try:
            async with asyncio.timeout(None if seconds is None else _TIMEOUT_SHARE * seconds):
                llm_choice, is_charged = await self._choices.get(key, lambda: self._call(question))
        except TimeoutError:
            return replace(selection, llm_model=self._llm.model, fell_back_because="the LLM had not answered in time")
        except LLMError as error:
            return replace(selection, llm_model=self._llm.model, fell_back_because=str(error))
        return _with_llm_choice(selection, llm_choice if is_charged else replace(llm_choice, usage=Usage()))

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
        answer = read_answer(reply.text, question.ids)
        self._llm.record_answer(valid=answer is not None)
        model = match_candidate(answer.named, question.ids) if answer else None
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


def _with_llm_choice(selection: Selection, llm_choice: _LlmChoice) -> Selection:
    with_llm = replace(selection, llm_model=llm_choice.llm_model, usage=llm_choice.usage, version=VERSION)
    if not llm_choice.model:
        return replace(with_llm, fell_back_because="the LLM's answer names none of the candidates")
    position = next(i for i, chosen in enumerate(selection.chosen) if chosen.offer.card.id == llm_choice.model)
    best = selection.chosen[position]
    best = replace(best, reason=llm_choice.reason or best.reason)
    return replace(
        with_llm,
        controller=Controller.LLM,
        chosen=[best, *selection.chosen[:position], *selection.chosen[position + 1 :]],
        reason=best.reason,
        confidence=0.0,
    )


# ---------------------------------------------------------------- decisive rankings


def contenders(selection: Selection) -> Sequence[SelectedModel]:
    """Models that may be first, best ranked first.

    Without failing ones; in hybrid mode without external ones; and without the LLM of the deployment, which is first
    only where nothing else is made for the task, and is then the only one.
    """
    first = selection.chosen[0]
    return [
        chosen
        for chosen in selection.chosen
        if chosen.failing == first.failing
        and chosen.offer.is_llm == first.offer.is_llm
        and (selection.mode is not Mode.HYBRID or chosen.offer.external == first.offer.external)
    ]


def is_decisive(spec: TaskSpec, query: SelectionQuery, ranked: Sequence[SelectedModel]) -> bool:
    """Whether the first model needs no comparison by an LLM."""
    first, *others = ranked
    terms = (stemmed(query.source) or stemmed(query.request)) - stemmed(f"{spec.name} {spec.description}")
    return all(
        _is_same_model(first, other)
        or (_matches_as_many_terms(first, other, terms, query) and _is_clearly_faster(first, other))
        for other in others
    )


def _is_same_model(first: SelectedModel, other: SelectedModel) -> bool:
    return first.offer.card.id == other.offer.card.id


def _matches_as_many_terms(
    first: SelectedModel, other: SelectedModel, terms: frozenset[str], query: SelectionQuery
) -> bool:
    matched = terms & first.offer.stems
    return (
        bool(matched)
        and terms & other.offer.stems <= matched
        and _supports_languages(first, query) >= _supports_languages(other, query)
    )


def _supports_languages(chosen: SelectedModel, query: SelectionQuery) -> bool:
    return not chosen.offer.languages or query.languages <= chosen.offer.languages


def _is_clearly_faster(first: SelectedModel, other: SelectedModel) -> bool:
    if first.offer.readiness not in _REACHABLE:
        return False
    if other.offer.readiness not in _REACHABLE:
        return True
    duration, other_duration = _expected_seconds(first), _expected_seconds(other)
    return (
        first.offer.readiness is Readiness.READY
        and duration is not None
        and other_duration is not None
        and FASTER * duration <= other_duration
        and first.offer.card.p95.ToNanoseconds() <= other.offer.card.p95.ToNanoseconds()
    )


def _expected_seconds(chosen: SelectedModel) -> float | None:
    """Expected duration of a call with its queue, in seconds; None if not measured."""
    if chosen.offer.median is None or not chosen.replicas:
        return None
    return max(chosen.offer.median, PROMPT_SECONDS) * (1 + chosen.shortest_queue)
