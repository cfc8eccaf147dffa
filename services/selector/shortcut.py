"""When no LLM need be asked: who comes into question, and whether the first of them is so by far.

The first of the ranking is clear, if of every other one that comes into question two things hold:

- it is no better by its words: it is the same model elsewhere; or the first says something that the task's own words
  say and the kind of task does not, all that the other says of it, and knows the languages if the other does;
- it is worse by measure: asleep or silent while the expert of the first answers; or, the first being loaded, at least
  twice as slow. What it takes is its median, at least 50 ms, times one more than the calls that wait or run where
  fewest do; and its 95th percentile must not be the shorter one.

Where nothing is measured, or no word tells them apart, an LLM reads better than we do.
"""

from collections.abc import Sequence

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.selector.query import Mode, Wanted
from services.selector.ranking import PROMPT_SECONDS, Presence
from services.selector.selector import Choice, Chosen
from services.selector.tokens import stemmed

FASTER = 2.0

_AWAKE = {Presence.READY, Presence.LOADABLE}


def rivals(choice: Choice) -> Sequence[Chosen]:
    """Those that may be put first, best ranked first; what fails is not, nor in mode hybrid what is outside."""
    first = choice.chosen[0]
    return [
        chosen
        for chosen in choice.chosen
        if chosen.failing == first.failing
        and (choice.mode is not Mode.HYBRID or chosen.offer.external == first.offer.external)
    ]


def is_clear(spec: TaskSpec, wanted: Wanted, ranked: Sequence[Chosen]) -> bool:
    """Whether the first needs no comparison in words with the others."""
    first, *others = ranked
    own = (stemmed(wanted.source) or stemmed(wanted.request)) - stemmed(f"{spec.name} {spec.description}")
    return all(
        _same(first, other) or (_says_as_much(first, other, own, wanted) and _measures_better(first, other))
        for other in others
    )


def _same(first: Chosen, other: Chosen) -> bool:
    return first.offer.card.id == other.offer.card.id


def _says_as_much(first: Chosen, other: Chosen, own: frozenset[str], wanted: Wanted) -> bool:
    said = own & first.offer.stems
    return bool(said) and own & other.offer.stems <= said and _knows(first, wanted) >= _knows(other, wanted)


def _knows(chosen: Chosen, wanted: Wanted) -> bool:
    return not chosen.offer.languages or wanted.languages <= chosen.offer.languages


def _measures_better(first: Chosen, other: Chosen) -> bool:
    if first.offer.presence not in _AWAKE:
        return False
    if other.offer.presence not in _AWAKE:
        return True
    takes, other_takes = seconds(first), seconds(other)
    return (
        first.offer.presence is Presence.READY
        and takes is not None
        and other_takes is not None
        and FASTER * takes <= other_takes
        and first.offer.card.p95.ToNanoseconds() <= other.offer.card.p95.ToNanoseconds()
    )


def seconds(chosen: Chosen) -> float | None:
    """What a call will take about, those before it included; None if not measured."""
    if chosen.offer.median is None or not chosen.replicas:
        return None
    return max(chosen.offer.median, PROMPT_SECONDS) * (1 + queue(chosen))


def queue(chosen: Chosen) -> int:
    """Calls that wait or run where fewest do."""
    return min((replica.load.waiting + replica.load.running for replica in chosen.replicas), default=0)
