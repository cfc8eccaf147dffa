from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.embedded.intents import EDITING, task_of
from services.planner.embedded.learned.beam_search import MOST, Graph
from services.planner.embedded.learned.candidates import Hints
from services.planner.embedded.learned.features import (
    MOST_OF_CONTENT,
    MOST_TOKENS,
    Family,
    Token,
    features,
    tokens,
)
from services.planner.embedded.learned.reading import best_graph, read
from services.planner.embedded.learned.weights import Weights, weights, write
from services.planner.embedded.learned.weights import read as read_weights
from services.planner.embedded.resources import resources
from services.planner.embedded.wording import read as read_wording
from services.planner.task_spec import Modality
from tests.eval.lines import Line
from tests.eval.lines import read as read_lines
from tests.eval.training.examples import examples
from tests.eval.training.learning import learned
from tests.support.plans import STANDARD, plan_request

pytestmark = pytest.mark.slow

LEARNED = weights()
TASKBENCH = Path(__file__).parents[1] / "eval" / "data" / "taskbench.jsonl"


def token_list(text: str, names: tuple[str, ...] = ()) -> list[Token]:
    return tokens(read_wording(text, resources(plan_request(text, names))))


def sense_index(intent: str) -> int:
    return LEARNED.intents.index(intent)


def test_file_name_becomes_a_token_of_its_modality() -> None:
    found = token_list("Blur Holiday 2024.jpg!", ("Holiday 2024.jpg",))
    assert [token.word for token in found] == ["blur", "<image>", "!"]
    assert [token.start for token in found] == [0, 5, 21]


def test_long_content_and_long_requests_are_truncated() -> None:
    assert len(token_list(f'Translate "{"word " * 500}" into German')) < MOST_OF_CONTENT + 10
    assert len(token_list("word " * 2_000)) == MOST_TOKENS


def test_features_are_phrases_word_parts_and_word_pairs() -> None:
    found = [feature for feature, _ in features(token_list("read it, aloud"))]
    assert (Family.PHRASE, "it , aloud") in found
    assert (Family.PART, " rea") in found
    assert (Family.PAIR, "read~aloud") in found
    assert (Family.PAIR, "aloud~read") not in found


def test_features_have_the_positions_of_their_tokens() -> None:
    found = token_list("cut the cat")
    assert {where for feature, where in features(found) if feature == (Family.PHRASE, "the cat")} == {(1, 2)}


def test_weights_match_the_standard_tasks() -> None:
    assert {task_of(intent) for intent in LEARNED.intents} <= STANDARD.keys()
    assert EDITING in LEARNED.intents
    assert LEARNED.linear.shape == (len(LEARNED.features), 3 * len(LEARNED.intents) + 4)


def test_weights_are_restored_up_to_quantization() -> None:
    restored = read_weights(write(LEARNED))
    assert restored.intents == LEARNED.intents
    assert restored.features == LEARNED.features
    np.testing.assert_array_equal(restored.step, LEARNED.step)
    largest = np.abs(LEARNED.linear).max(axis=0)
    assert (np.abs(restored.linear - LEARNED.linear) <= largest / 127 + 1e-6).all()


def test_simple_request_is_read_with_high_probability() -> None:
    found = token_list("Please transcribe the recording example.wav and summarize the transcript.")
    reading = read(found, Hints(kinds=frozenset((Modality.AUDIO,))), LEARNED)
    transcribing, summarizing = sense_index("automatic-speech-recognition"), sense_index("summarization")
    assert reading.graph == Graph(frozenset((transcribing, summarizing)), frozenset(((transcribing, summarizing),)))
    assert reading.probability > 0.5
    positions = reading.evidence.position
    assert positions[transcribing] < positions[summarizing]


def test_refused_intent_is_not_in_any_graph() -> None:
    found = token_list("Translate the text into French and summarize it")
    translating = sense_index("translation")
    assert translating in read(found, Hints(), LEARNED).graph.intents
    hints = Hints(refused=frozenset((translating,)))
    assert all(translating not in graph.intents for graph in read(found, hints, LEARNED).graphs)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=300), st.booleans())
def test_graphs_of_any_text_are_small_acyclic_and_sum_to_probability_one(text: str, suggested: bool) -> None:
    hints = Hints(intents=frozenset((0, 1)), links=frozenset(((0, 1),)), certainty=0.9) if suggested else Hints()
    reading = read(token_list(text), hints, LEARNED)
    assert sum(reading.graphs.values()) == pytest.approx(1)
    for graph in reading.graphs:
        assert len(graph.intents) <= MOST
        assert {end for link in graph.links for end in link} <= graph.intents
        assert not _has_cycle(graph)


def _has_cycle(graph: Graph) -> bool:
    remaining, links = set(graph.intents), set(graph.links)
    while ready := remaining - {consumer for _, consumer in links}:
        remaining -= ready
        links = {link for link in links if link[0] not in ready}
    return bool(remaining)


def test_selected_graph_maximizes_expected_agreement() -> None:
    unlinked, correct, remaining = Graph(frozenset((1,)), frozenset()), _linked_graph(1, 2), _linked_graph(1, 3)
    assert best_graph({unlinked: 0.4, correct: 0.35, remaining: 0.25}) == unlinked
    assert best_graph({unlinked: 0.3, correct: 0.6, remaining: 0.1}) == correct


def _linked_graph(producer: int, consumer: int) -> Graph:
    return Graph(frozenset((producer, consumer)), frozenset(((producer, consumer),)))


@pytest.fixture(scope="module")
def two_task_lines() -> list[Line]:
    """Requests of the benchmark with no other tasks than these two."""
    allowed_tasks = {"Translation", "Text-to-Speech"}
    return [line for line in read_lines(TASKBENCH) if line.label and line.label.graph.nodes <= allowed_tasks]


def test_training_is_deterministic_and_learns_the_examples(two_task_lines: list[Line]) -> None:
    intents = ["text-to-speech", "translation"]
    given_examples = examples(two_task_lines, intents)
    trained = learned(given_examples, intents)
    assert write(learned(given_examples, intents)) == write(trained)
    correct = [
        _read(trained, line) == {*example.intents} for line, example in zip(two_task_lines, given_examples, strict=True)
    ]
    assert len(two_task_lines) > 100
    assert sum(correct) > 0.95 * len(two_task_lines)


def _read(trained: Weights, line: Line) -> set[int]:
    return set(read(token_list(line.request), Hints(), trained).graph.intents)
