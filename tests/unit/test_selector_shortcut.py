"""Which selections need no LLM."""

from datetime import timedelta
from typing import Any

import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_LOADABLE, ModelCard
from services.selector.catalog import Catalog
from services.selector.query import Avoid, Mode, SelectionQuery
from services.selector.selector import Selection, Selector
from services.selector.shortcut import is_clear, rivals
from tests.fakes import card

TASK = "text-to-speech"
ASKED = "a calm voice"
CALM = "Reads in a calm voice."
OTHER = "Reads in a loud tone."


def voice(name: str, description: str = CALM, p50: float = 0.0, p95: float = 0.0, **fields: Any) -> ModelCard:
    times = {name: timedelta(seconds=seconds) for name, seconds in (("p50", p50), ("p95", p95 or 1.5 * p50)) if seconds}
    return card(name, TASK, description, **times, **fields)


class House:
    """A catalogue, an expert per card."""

    def __init__(self, *cards: ModelCard) -> None:
        standard = standard_tasks()
        self.catalog = Catalog(standard)
        self.selector = Selector(self.catalog, standard, Mode.HYBRID)
        for number, offered in enumerate(cards):
            self.hear(f"e{number}:1", offered)

    def hear(
        self, address: str, offered: ModelCard, load: ExpertLoad | None = None, *, scales_to_zero: bool = False
    ) -> None:
        self.catalog.listed(address)
        expert = address.partition(":")[0]
        reply = DescribeResponse(expert=expert, models=[offered], load=load, scales_to_zero=scales_to_zero)
        self.catalog.record_reply(address, reply)

    def choose(self, wanted: SelectionQuery) -> Selection:
        return self.selector.choose(wanted)

    def settles(self, source: str = ASKED, **fields: Any) -> bool:
        wanted = SelectionQuery(TASK, source, **fields)
        choice = self.choose(wanted)
        return is_clear(choice.spec, wanted, rivals(choice))


CASES: dict[str, tuple[bool, tuple[ModelCard, ...]]] = {
    "twice as fast": (True, (voice("a", p50=0.2), voice("b", p50=0.4))),
    "not quite twice as fast": (False, (voice("a", p50=0.2), voice("b", p50=0.39))),
    "faster by milliseconds that nobody feels": (False, (voice("a", p50=0.001), voice("b", p50=0.04))),
    "not measured": (False, (voice("a", p50=0.2), voice("b"))),
    "faster, but at times very slow": (False, (voice("a", p50=0.2, p95=9), voice("b", p50=0.6, p95=1))),
    "faster, but still to be loaded": (
        False,
        (voice("a", p50=0.2, state=MODEL_STATE_LOADABLE), voice("b", p50=3, state=MODEL_STATE_LOADABLE)),
    ),
    "the same model elsewhere": (True, (voice("a"), voice("a"))),
    "faster, and says more of what was asked": (True, (voice("a", p50=0.2), voice("b", OTHER, p50=0.4))),
    "faster, but the other says what it does not": (
        False,
        (voice("a", "A calm speaker.", p50=0.1), voice("b", "A voice for books.", p50=9)),
    ),
}


@pytest.mark.parametrize(("expected", "cards"), CASES.values(), ids=CASES)
def test_the_first_is_clear(expected: bool, cards: tuple[ModelCard, ...]) -> None:
    assert House(*cards).settles() is expected


def test_where_no_word_tells_the_models_apart_an_llm_reads_better() -> None:
    house = House(voice("a", "Eine ruhige Stimme.", p50=0.1), voice("b", "Eine laute Stimme.", p50=9))
    assert not house.settles("with a certain something")
    assert not house.settles("text to speech")  # words of the kind of task say nothing of a model
    assert not house.settles("")


def test_without_words_of_its_own_a_task_has_those_of_the_request() -> None:
    assert House(voice("a", p50=0.1), voice("b", p50=9)).settles("", request="speak in a calm voice")


def test_a_language_that_only_the_other_knows_is_for_an_llm_to_weigh() -> None:
    cards = (voice("a", "A calm voice.", p50=0.1, languages=["en"]), voice("b", "A tone.", p50=9, languages=["de"]))
    assert House(*cards).settles()
    assert not House(*cards).settles(languages=frozenset({"de"}))


def test_one_that_answers_is_clear_of_one_that_does_not() -> None:
    house = House(voice("a"), voice("b"))
    assert not house.settles()
    house.catalog.record_failure("e1:1", "does not answer")
    assert house.settles()


def test_one_that_answers_is_not_clear_of_a_sleeper_that_fits_better() -> None:
    house = House(voice("a", OTHER))
    house.hear("sleepy:1", voice("b", "Calm.", p50=1), scales_to_zero=True)
    house.catalog.drop_address("sleepy:1")
    assert not house.settles("a calm and loud voice")


def test_a_queue_makes_slow() -> None:
    house = House(voice("a", p50=0.2), voice("b", p50=0.2))
    assert not house.settles()
    house.hear("e1:1", voice("b", p50=0.2), ExpertLoad(waiting=1, running=1))
    assert house.settles()


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in rivals(choice)]


def test_what_fails_comes_into_question_only_where_all_fail() -> None:
    house = House(voice("a"), voice("b"), voice("c"))
    assert ids(house.choose(SelectionQuery(TASK, avoid=[Avoid(model="a")]))) == ["b", "c"]
    assert ids(house.choose(SelectionQuery(TASK, avoid=[Avoid()]))) == ["a", "b", "c"]


def test_what_is_outside_comes_into_question_with_what_is_inside_only_where_the_mode_says_so() -> None:
    house = House(
        voice("a"), voice("b", location=MODEL_LOCATION_EXTERNAL), voice("c", location=MODEL_LOCATION_EXTERNAL)
    )
    assert ids(house.choose(SelectionQuery(TASK, allows_external=True))) == ["a"]
    assert ids(house.choose(SelectionQuery(TASK, allows_external=True, mode=Mode.REMOTE))) == ["b", "c"]
