"""Selections that need no LLM."""

from datetime import timedelta
from typing import Any

import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_METHOD_LLM,
    MODEL_METHOD_RULES,
    MODEL_STATE_LOADABLE,
    ModelCard,
)
from services.selector.catalog import ExpertCatalog
from services.selector.llm_selector import contenders, is_decisive
from services.selector.selection import Avoid, Mode, Selection, SelectionQuery
from services.selector.selector import Selector
from tests.fakes import card

TASK = "text-to-speech"
REQUEST = "a calm voice"
CALM = "Reads in a calm voice."
OTHER = "Reads in a loud tone."


def voice(name: str, description: str = CALM, p50: float = 0.0, p95: float = 0.0, **fields: Any) -> ModelCard:
    times = {name: timedelta(seconds=seconds) for name, seconds in (("p50", p50), ("p95", p95 or 1.5 * p50)) if seconds}
    return card(name, TASK, description, **times, **fields)


class CatalogUnderTest:
    """A catalogue with one expert per card."""

    def __init__(self, *cards: ModelCard) -> None:
        standard = standard_tasks()
        self.catalog = ExpertCatalog(standard)
        self.selector = Selector(self.catalog, standard, Mode.HYBRID)
        for number, offered in enumerate(cards):
            self.record(f"e{number}:1", offered)

    def record(
        self, address: str, offered: ModelCard, load: ExpertLoad | None = None, *, scales_to_zero: bool = False
    ) -> None:
        self.catalog.add_address(address)
        expert = address.partition(":")[0]
        reply = DescribeResponse(expert=expert, models=[offered], load=load, scales_to_zero=scales_to_zero)
        self.catalog.record_reply(address, reply)

    def choose(self, query: SelectionQuery) -> Selection:
        return self.selector.choose(query)

    def is_decided(self, source: str = REQUEST, **fields: Any) -> bool:
        query = SelectionQuery(TASK, source, **fields)
        choice = self.choose(query)
        return is_decisive(choice.spec, query, contenders(choice))


CASES: dict[str, tuple[bool, tuple[ModelCard, ...]]] = {
    "twice as fast": (True, (voice("a", p50=0.2), voice("b", p50=0.4))),
    "not quite twice as fast": (False, (voice("a", p50=0.2), voice("b", p50=0.39))),
    "faster by a few milliseconds": (False, (voice("a", p50=0.001), voice("b", p50=0.04))),
    "not measured": (False, (voice("a", p50=0.2), voice("b"))),
    "faster, but at times very slow": (False, (voice("a", p50=0.2, p95=9), voice("b", p50=0.6, p95=1))),
    "faster, but to be loaded": (
        False,
        (voice("a", p50=0.2, state=MODEL_STATE_LOADABLE), voice("b", p50=3, state=MODEL_STATE_LOADABLE)),
    ),
    "the same model of another expert": (True, (voice("a"), voice("a"))),
    "faster, and matches more terms": (True, (voice("a", p50=0.2), voice("b", OTHER, p50=0.4))),
    "faster, but the other matches a term it lacks": (
        False,
        (voice("a", "A calm speaker.", p50=0.1), voice("b", "A voice for books.", p50=9)),
    ),
}


@pytest.mark.parametrize(("expected", "cards"), CASES.values(), ids=CASES)
def test_first_candidate_is_decisive(expected: bool, cards: tuple[ModelCard, ...]) -> None:
    assert CatalogUnderTest(*cards).is_decided() is expected


def test_llm_of_the_deployment_is_no_contender_of_models_made_for_the_task() -> None:
    offers = CatalogUnderTest(voice("a"), voice("b"), voice("llm", OTHER, method=MODEL_METHOD_LLM))
    choice = offers.choose(SelectionQuery(TASK, REQUEST))
    assert [chosen.offer.card.id for chosen in contenders(choice)] == ["a", "b"]


def test_llm_of_the_deployment_has_no_contender_among_rules() -> None:
    offers = CatalogUnderTest(voice("rules", method=MODEL_METHOD_RULES), voice("llm", OTHER, method=MODEL_METHOD_LLM))
    choice = offers.choose(SelectionQuery(TASK, REQUEST))
    assert [chosen.offer.card.id for chosen in contenders(choice)] == ["llm"]


def test_ranking_is_not_decisive_if_no_term_distinguishes_the_models() -> None:
    offers = CatalogUnderTest(voice("a", "Eine ruhige Stimme.", p50=0.1), voice("b", "Eine laute Stimme.", p50=9))
    assert not offers.is_decided("with a certain something")
    assert not offers.is_decided("text to speech")  # terms of the task name describe no model
    assert not offers.is_decided("")


def test_request_text_is_used_for_a_task_without_text() -> None:
    assert CatalogUnderTest(voice("a", p50=0.1), voice("b", p50=9)).is_decided("", request="speak in a calm voice")


def test_ranking_is_not_decisive_if_only_the_second_model_supports_the_language() -> None:
    cards = (voice("a", "A calm voice.", p50=0.1, languages=["en"]), voice("b", "A tone.", p50=9, languages=["de"]))
    assert CatalogUnderTest(*cards).is_decided()
    assert not CatalogUnderTest(*cards).is_decided(languages=frozenset({"de"}))


def test_reachable_model_is_decisive_over_unreachable_one() -> None:
    offers = CatalogUnderTest(voice("a"), voice("b"))
    assert not offers.is_decided()
    offers.catalog.record_failure("e1:1", "does not answer")
    assert offers.is_decided()


def test_reachable_model_is_not_decisive_over_better_matching_dormant_one() -> None:
    offers = CatalogUnderTest(voice("a", OTHER))
    offers.record("dormant:1", voice("b", "Calm.", p50=1), scales_to_zero=True)
    offers.catalog.drop_address("dormant:1")
    assert not offers.is_decided("a calm and loud voice")


def test_queue_counts_as_slower() -> None:
    offers = CatalogUnderTest(voice("a", p50=0.2), voice("b", p50=0.2))
    assert not offers.is_decided()
    offers.record("e1:1", voice("b", p50=0.2), ExpertLoad(waiting=1, running=1))
    assert offers.is_decided()


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in contenders(choice)]


def test_failing_models_are_contenders_only_if_all_fail() -> None:
    offers = CatalogUnderTest(voice("a"), voice("b"), voice("c"))
    assert ids(offers.choose(SelectionQuery(TASK, avoid=[Avoid(model="a")]))) == ["b", "c"]
    assert ids(offers.choose(SelectionQuery(TASK, avoid=[Avoid()]))) == ["a", "b", "c"]


def test_external_models_are_contenders_only_in_remote_mode() -> None:
    offers = CatalogUnderTest(
        voice("a"), voice("b", location=MODEL_LOCATION_EXTERNAL), voice("c", location=MODEL_LOCATION_EXTERNAL)
    )
    assert ids(offers.choose(SelectionQuery(TASK, allows_external=True))) == ["a"]
    assert ids(offers.choose(SelectionQuery(TASK, allows_external=True, mode=Mode.REMOTE))) == ["b", "c"]
