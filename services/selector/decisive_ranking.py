"""Decides whether the ranking is decisive, so that no LLM is called.

The first model is decisive if, compared with every other model that may be first, two things hold:

- its description fits at least as well: it is the same model at another expert; or it matches a term of the task's own
  text that the kind of task does not contain, and all that the other matches, and supports the languages if the other
  does;
- it is better by measurement: the other is dormant or unreachable while the first is reachable; or the first is loaded
  and at least twice as fast. Its time is its median, at least 50 ms, times one more than its shortest queue; and its
  95th percentile must not be longer.

Where nothing is measured, or no term tells the models apart, an LLM decides better.
"""

from collections.abc import Sequence

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.selector.query import Mode, SelectionQuery
from services.selector.ranking import PROMPT_SECONDS, Readiness, stemmed
from services.selector.selection import SelectedModel, Selection

FASTER = 2.0

_REACHABLE = {Readiness.READY, Readiness.LOADABLE}


def contenders(choice: Selection) -> Sequence[SelectedModel]:
    """Models that may be first, best ranked first: without failing ones, and in hybrid mode without external ones."""
    first = choice.chosen[0]
    return [
        chosen
        for chosen in choice.chosen
        if chosen.failing == first.failing
        and (choice.mode is not Mode.HYBRID or chosen.offer.external == first.offer.external)
    ]


def is_clear(spec: TaskSpec, query: SelectionQuery, ranked: Sequence[SelectedModel]) -> bool:
    """Whether the first model needs no comparison by an LLM."""
    first, *others = ranked
    terms = (stemmed(query.source) or stemmed(query.request)) - stemmed(f"{spec.name} {spec.description}")
    return all(
        _same(first, other) or (_matches_as_many_terms(first, other, terms, query) and _is_clearly_faster(first, other))
        for other in others
    )


def _same(first: SelectedModel, other: SelectedModel) -> bool:
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
    duration, other_duration = seconds(first), seconds(other)
    return (
        first.offer.readiness is Readiness.READY
        and duration is not None
        and other_duration is not None
        and FASTER * duration <= other_duration
        and first.offer.card.p95.ToNanoseconds() <= other.offer.card.p95.ToNanoseconds()
    )


def seconds(chosen: SelectedModel) -> float | None:
    """Expected duration of a call with its queue, in seconds; None if not measured."""
    if chosen.offer.median is None or not chosen.replicas:
        return None
    return max(chosen.offer.median, PROMPT_SECONDS) * (1 + queue(chosen))


def queue(chosen: SelectedModel) -> int:
    """Length of the shortest queue of its replicas."""
    return min((replica.load.waiting + replica.load.running for replica in chosen.replicas), default=0)
