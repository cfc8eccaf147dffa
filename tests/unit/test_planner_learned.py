from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.embedded.learned.parsing import MOST, Graph
from services.planner.embedded.learned.reading import read, worthiest
from services.planner.embedded.learned.stages import Hints
from services.planner.embedded.learned.weights import Weights, weights, write
from services.planner.embedded.learned.weights import read as read_weights
from services.planner.embedded.learned.words import (
    MOST_OF_CONTENT,
    MOST_TOKENS,
    Family,
    Token,
    features,
    tokens,
)
from services.planner.embedded.resources import resources
from services.planner.embedded.senses import EDITING, task_of
from services.planner.embedded.wording import read as read_wording
from services.planner.plan import Modality
from tests.eval.lines import Line
from tests.eval.lines import read as read_lines
from tests.eval.training.examples import examples
from tests.eval.training.learning import learned
from tests.support.plans import STANDARD, asked

pytestmark = pytest.mark.slow

LEARNED = weights()
TASKBENCH = Path(__file__).parents[1] / "eval" / "data" / "taskbench.jsonl"


def words(text: str, names: tuple[str, ...] = ()) -> list[Token]:
    return tokens(read_wording(text, resources(asked(text, names))))


def place(sense: str) -> int:
    return LEARNED.senses.index(sense)


def test_a_file_is_known_by_its_kind_whatever_its_name() -> None:
    found = words("Blur Holiday 2024.jpg!", ("Holiday 2024.jpg",))
    assert [token.word for token in found] == ["blur", "<image>", "!"]
    assert [token.start for token in found] == [0, 5, 21]


def test_long_content_and_long_requests_are_cut() -> None:
    assert len(words(f'Translate "{"word " * 500}" into German')) < MOST_OF_CONTENT + 10
    assert len(words("word " * 2_000)) == MOST_TOKENS


def test_features_are_phrases_parts_of_words_and_words_near_each_other() -> None:
    found = [feature for feature, _ in features(words("read it, aloud"))]
    assert (Family.PHRASE, "it , aloud") in found
    assert (Family.PART, " rea") in found
    assert (Family.PAIR, "read~aloud") in found
    assert (Family.PAIR, "aloud~read") not in found


def test_positions_of_features_are_those_of_their_tokens() -> None:
    found = words("cut the cat")
    assert {where for feature, where in features(found) if feature == (Family.PHRASE, "the cat")} == {(1, 2)}


def test_what_was_learned_fits_the_tasks_there_are() -> None:
    assert {task_of(sense) for sense in LEARNED.senses} <= STANDARD.keys()
    assert EDITING in LEARNED.senses
    assert LEARNED.linear.shape == (len(LEARNED.features), 3 * len(LEARNED.senses) + 4)


def test_weights_are_read_as_they_were_written_but_for_their_last_digits() -> None:
    again = read_weights(write(LEARNED))
    assert again.senses == LEARNED.senses
    assert again.features == LEARNED.features
    np.testing.assert_array_equal(again.step, LEARNED.step)
    largest = np.abs(LEARNED.linear).max(axis=0)
    assert (np.abs(again.linear - LEARNED.linear) <= largest / 127 + 1e-6).all()


def test_a_plain_request_is_read_with_certainty() -> None:
    found = words("Please transcribe the recording example.wav and summarize the transcript.")
    reading = read(found, Hints(kinds=frozenset((Modality.AUDIO,))), LEARNED)
    transcribing, summing_up = place("automatic-speech-recognition"), place("summarization")
    assert reading.graph == Graph(frozenset((transcribing, summing_up)), frozenset(((transcribing, summing_up),)))
    assert reading.probability > 0.5
    spoken_for = reading.evidence.position
    assert spoken_for[transcribing] < spoken_for[summing_up]


def test_what_the_words_refuse_is_not_read() -> None:
    found = words("Translate the text into French and summarize it")
    translating = place("translation")
    assert translating in read(found, Hints(), LEARNED).graph.senses
    refusing = Hints(refused=frozenset((translating,)))
    assert all(translating not in graph.senses for graph in read(found, refusing, LEARNED).graphs)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=300), st.booleans())
def test_whatever_is_typed_the_graphs_are_small_and_without_circles_and_their_probabilities_sum_to_one(
    text: str, suggested: bool
) -> None:
    hints = Hints(senses=frozenset((0, 1)), links=frozenset(((0, 1),)), certainty=0.9) if suggested else Hints()
    reading = read(words(text), hints, LEARNED)
    assert sum(reading.graphs.values()) == pytest.approx(1)
    for graph in reading.graphs:
        assert len(graph.senses) <= MOST
        assert {end for link in graph.links for end in link} <= graph.senses
        assert not _has_circle(graph)


def _has_circle(graph: Graph) -> bool:
    left, links = set(graph.senses), set(graph.links)
    while ready := left - {consumer for _, consumer in links}:
        left -= ready
        links = {link for link in links if link[0] not in ready}
    return bool(left)


def test_the_graph_of_greatest_worth_has_what_most_graphs_have() -> None:
    alone, right, left = Graph(frozenset((1,)), frozenset()), _fed(1, 2), _fed(1, 3)
    assert worthiest({alone: 0.4, right: 0.35, left: 0.25}) == alone
    assert worthiest({alone: 0.3, right: 0.6, left: 0.1}) == right


def _fed(producer: int, consumer: int) -> Graph:
    return Graph(frozenset((producer, consumer)), frozenset(((producer, consumer),)))


@pytest.fixture(scope="module")
def few() -> list[Line]:
    """Requests of the benchmark that call for nothing but two tasks."""
    wanted = {"Translation", "Text-to-Speech"}
    return [line for line in read_lines(TASKBENCH) if line.label and line.label.graph.nodes <= wanted]


def test_from_examples_is_learned_what_words_call_for_always_in_the_same_way(few: list[Line]) -> None:
    senses = ["text-to-speech", "translation"]
    given_examples = examples(few, senses)
    made = learned(given_examples, senses)
    assert write(learned(given_examples, senses)) == write(made)
    right = [_read(made, line) == {*example.senses} for line, example in zip(few, given_examples, strict=True)]
    assert len(few) > 100
    assert sum(right) > 0.95 * len(few)


def _read(made: Weights, line: Line) -> set[int]:
    return set(read(words(line.request), Hints(), made).graph.senses)
