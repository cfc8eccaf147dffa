"""Chooses a model by asking an LLM, where neither the request nor what is measured has settled it."""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import structlog

from services.common import call_context
from services.llm.client import LLM
from services.llm.llm_error import Unusable
from services.llm.usage import Usage
from services.selector.cache import Shared
from services.selector.llm_answer import read, repaired
from services.selector.llm_prompt import VERSION, Question, can_be_named, posed
from services.selector.query import Wanted
from services.selector.selector import CANDIDATES, Choice, Chosen, Controller, Selector
from services.selector.shortcut import is_clear, rivals

log = structlog.get_logger(__name__)

DESCRIBED = 5

_REMEMBERED_SECONDS, _REMEMBERED = 60.0, 1024
_PATIENCE = 0.5
"""Of the time that the caller has: the other half is the ranking's and the task's."""


@dataclass(frozen=True)
class _Opinion:
    """What an LLM said."""

    model: str
    """Id of the one it chose; empty if it chose none of the candidates."""
    reason: str
    llm_model: str
    usage: Usage


class Judge:
    """Asks an LLM which of the best ranked models is the right one.

    Args:
        llm: who is asked.
        selector: who ranks.
        described: of how many it is told.
    """

    def __init__(self, llm: LLM, selector: Selector, *, described: int = DESCRIBED) -> None:
        self._llm = llm
        self._selector = selector
        self._described = described
        self._opinions = Shared[Hashable, _Opinion](
            lambda opinion: bool(opinion.model), seconds=_REMEMBERED_SECONDS, size=_REMEMBERED
        )

    async def choose(self, wanted: Wanted, seconds: float | None) -> Choice:
        """The best models for a task, the LLM's choice first, the others as they are ranked.

        Args:
            wanted: the task.
            seconds: what the caller has left; None: any time.

        Raises:
            ServiceError: as Selector.choose does; never because of the LLM.
        """
        limit = wanted.limit or CANDIDATES
        choice = self._selector.choose(replace(wanted, limit=max(limit, self._described)) if limit > 0 else wanted)
        shown = _distinct(rivals(choice))[: self._described]
        if choice.controller is Controller.RANK and len(shown) > 1:
            choice = await self._settled(choice, wanted, shown, seconds)
        return replace(choice, chosen=choice.chosen[:limit])

    async def _settled(self, choice: Choice, wanted: Wanted, shown: Sequence[Chosen], seconds: float | None) -> Choice:
        if is_clear(choice.spec, wanted, shown):
            return replace(choice, reason=f"{choice.reason}; clearly, so no LLM was asked")
        question = posed(choice.spec, wanted, shown, self._budget, self._llm.tokens)
        if question is None:
            return replace(choice, fell_back_because="no two candidates find room in the LLM's context")
        key = self._key(wanted, question)
        try:
            async with asyncio.timeout(None if seconds is None else _PATIENCE * seconds):
                opinion, pays = await self._opinions.get(key, lambda: self._asked(question))
        except TimeoutError:
            return replace(choice, llm_model=self._llm.model, fell_back_because="the LLM had not answered in time")
        except Unusable as error:
            return replace(choice, llm_model=self._llm.model, fell_back_because=str(error))
        return _decided(choice, opinion if pays else replace(opinion, usage=Usage()))

    @property
    def _budget(self) -> int:
        return self._llm.context_tokens - self._llm.answer_tokens

    def _key(self, wanted: Wanted, question: Question) -> Hashable:
        """What an opinion depends on; no tenant learns from how quickly it comes what others asked."""
        words = replace(
            wanted, avoid=(), limit=0, lot="", source=_digest(wanted.source), request=_digest(wanted.request)
        )
        return (self._selector.revision, call_context.current().tenant, words, tuple(question.ids))

    async def _asked(self, question: Question) -> _Opinion:
        if question.scale < 1:
            log.info("texts shortened to ask for a model", scale=question.scale, candidates=len(question.ids))
        reply = await self._llm.complete(question.messages, schema=question.schema)
        answer = read(reply.text, question.ids)
        self._llm.judged(answer is not None)
        model = repaired(answer.named, question.ids) if answer else None
        if not model:
            log.warning("an LLM chose none of the candidates", llm_model=reply.model, readable=answer is not None)
        return _Opinion(model or "", answer.reason if answer else "", reply.model, reply.usage)


def _digest(text: str) -> str:
    """Stands for a user's words where they need not be kept."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _distinct(ranked: Sequence[Chosen]) -> Sequence[Chosen]:
    """The best ranked of each id, and only those whose id can be said."""
    first = {chosen.offer.card.id: chosen for chosen in reversed(ranked)}
    return [chosen for chosen in ranked if chosen is first[chosen.offer.card.id] and can_be_named(chosen.offer.card.id)]


def _decided(choice: Choice, opinion: _Opinion) -> Choice:
    asked = replace(choice, llm_model=opinion.llm_model, usage=opinion.usage, version=VERSION)
    if not opinion.model:
        return replace(asked, fell_back_because="the LLM's answer names none of the candidates")
    place = next(i for i, chosen in enumerate(choice.chosen) if chosen.offer.card.id == opinion.model)
    best = choice.chosen[place]
    best = replace(best, reason=opinion.reason or best.reason)
    return replace(
        asked,
        controller=Controller.LLM,
        chosen=[best, *choice.chosen[:place], *choice.chosen[place + 1 :]],
        reason=best.reason,
        confidence=0.0,
    )
