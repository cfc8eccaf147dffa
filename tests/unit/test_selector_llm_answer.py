import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.selector.llm_answer import REASON_CHARACTERS, Answer, read, repaired

quickly = settings(max_examples=150, deadline=None, derandomize=True, database=None)

IDS = ("openai/whisper-tiny", "openai/whisper-large-v3", "facebook/wav2vec2", "vader")

READ = {
    "as it was asked for": '{"id": "vader", "reason": "It knows moods."}',
    "in a fence": '```json\n{"id": "vader", "reason": "It knows moods."}\n```',
    "with prose around": 'Sure! {"id": "vader", "reason": "It knows moods."} Anything else?',
    "after thinking aloud": '<think>{"id": "facebook/wav2vec2"}?</think>{"id":"vader","reason":"It knows moods."}',
    "with single quotes": "{'id': 'vader', 'reason': 'It knows moods.'}",
    "with bare keys": '{id: "vader", reason: "It knows moods."}',
    "with a comma too many": '{"id": "vader", "reason": "It knows moods.",}',
    "inside something": '{"choice": {"id": "vader", "reason": "It knows moods."}}',
    "in a list": '[{"id": "vader", "reason": "It knows moods."}]',
    "in another order": '{"reason": "It knows moods.", "id": " vader "}',
    "over several lines": '{"id": "vader",\n "reason": "It knows\nmoods."}',
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_an_answer_is_read_however_it_is_written(text: str) -> None:
    assert read(text, IDS) == Answer("vader", "It knows moods.")


@pytest.mark.parametrize(
    "text",
    ["I would take facebook/wav2vec2 here.", '{"facebook/wav2vec2": "hears well"}', '{"id": "facebook/wav2vec2", "rea'],
)
def test_less_than_an_object_still_names_one(text: str) -> None:
    answer = read(text, IDS)
    assert answer
    assert answer.named == "facebook/wav2vec2"


def test_the_longer_of_two_names_is_meant_where_one_is_part_of_the_other() -> None:
    answer = read("whisper-tiny it is", ["whisper", "whisper-tiny"])
    assert answer
    assert answer.named == "whisper-tiny"


@pytest.mark.parametrize("text", ["", "no idea", "vader or facebook/wav2vec2", '{"id": 7}', "{" * 5000, "[1, 2]"])
def test_nonsense_names_nothing(text: str) -> None:
    assert read(text, IDS) is None


def test_a_reason_is_one_plain_line_of_bounded_length() -> None:
    answer = read('{"id": "vader", "reason": "a\\u202e\\u0000b\\n\\nc ' + "x" * 900 + '"}', IDS)
    assert answer
    assert answer.reason.startswith("a b c x")
    assert len(answer.reason) == REASON_CHARACTERS


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("vader", "vader"),
        ("`VADER`", "vader"),
        ("openai/whisper_tiny", "openai/whisper-tiny"),
        ("whisper-tiny", "openai/whisper-tiny"),
        ("someone/else/wav2vec2", "facebook/wav2vec2"),
        ("openai/whisper-large-v2", "openai/whisper-large-v3"),
        ("openai/wisper-tiny", "openai/whisper-tiny"),
        ("gpt-5", None),
        ("", None),
        ("openai", None),
    ],
)
def test_what_can_only_mean_one_candidate_means_it(named: str, meant: str | None) -> None:
    assert repaired(named, IDS) == meant


def test_what_can_mean_two_candidates_means_none() -> None:
    assert repaired("whisper", ["a/whisper", "b/whisper"]) is None
    assert repaired("whisper-large-v2", ["whisper-large-v1", "whisper-large-v3"]) is None
    assert repaired("a_b", ["a-b", "ab"]) is None


@quickly
@given(st.text() | st.text("{}[]\"':, \nidreason=\\").map(lambda text: text * 3), st.lists(st.text(min_size=1)))
def test_no_text_breaks_the_reading(text: str, ids: list[str]) -> None:
    answer = read(text, ids)
    assert answer is None or repaired(answer.named, ids) in {None, *ids}


@quickly
@given(st.text(min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_nobody_but_a_candidate_is_ever_meant(named: str, ids: list[str]) -> None:
    assert repaired(named, ids) in {None, *ids}
    assert repaired(ids[0], ids) == ids[0]
