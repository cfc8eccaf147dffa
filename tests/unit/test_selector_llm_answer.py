import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.selector.llm_prompt import REASON_CHARACTERS, Answer, match_candidate, read_answer

bounded = settings(max_examples=150, deadline=None, derandomize=True, database=None)

IDS = ("openai/whisper-tiny", "openai/whisper-large-v3", "facebook/wav2vec2", "vader")

FORMS = {
    "as requested": '{"id": "vader", "reason": "It knows moods."}',
    "in a fence": '```json\n{"id": "vader", "reason": "It knows moods."}\n```',
    "within prose": 'Sure! {"id": "vader", "reason": "It knows moods."} Anything else?',
    "after reasoning": '<think>{"id": "facebook/wav2vec2"}?</think>{"id":"vader","reason":"It knows moods."}',
    "with single quotes": "{'id': 'vader', 'reason': 'It knows moods.'}",
    "with bare keys": '{id: "vader", reason: "It knows moods."}',
    "with a trailing comma": '{"id": "vader", "reason": "It knows moods.",}',
    "nested": '{"choice": {"id": "vader", "reason": "It knows moods."}}',
    "in a list": '[{"id": "vader", "reason": "It knows moods."}]',
    "in another order": '{"reason": "It knows moods.", "id": " vader "}',
    "over several lines": '{"id": "vader",\n "reason": "It knows\nmoods."}',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_answer_is_read_in_every_form(text: str) -> None:
    assert read_answer(text, IDS) == Answer("vader", "It knows moods.")


@pytest.mark.parametrize(
    "text",
    ["I would take facebook/wav2vec2 here.", '{"facebook/wav2vec2": "hears well"}', '{"id": "facebook/wav2vec2", "rea'],
)
def test_id_is_read_from_prose_or_truncated_object(text: str) -> None:
    answer = read_answer(text, IDS)
    assert answer
    assert answer.named == "facebook/wav2vec2"


def test_longest_matching_id_is_read() -> None:
    answer = read_answer("whisper-tiny it is", ["whisper", "whisper-tiny"])
    assert answer
    assert answer.named == "whisper-tiny"


@pytest.mark.parametrize("text", ["", "no idea", "vader or facebook/wav2vec2", '{"id": 7}', "{" * 5000, "[1, 2]"])
def test_answer_without_a_single_candidate_is_none(text: str) -> None:
    assert read_answer(text, IDS) is None


def test_reason_is_one_plain_line_of_limited_length() -> None:
    answer = read_answer('{"id": "vader", "reason": "a\\u202e\\u0000b\\n\\nc ' + "x" * 900 + '"}', IDS)
    assert answer
    assert answer.reason.startswith("a b c x")
    assert len(answer.reason) == REASON_CHARACTERS


@pytest.mark.parametrize(
    ("named", "candidate"),
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
def test_unambiguous_name_matches_a_candidate(named: str, candidate: str | None) -> None:
    assert match_candidate(named, IDS) == candidate


def test_ambiguous_name_matches_no_candidate() -> None:
    assert match_candidate("whisper", ["a/whisper", "b/whisper"]) is None
    assert match_candidate("whisper-large-v2", ["whisper-large-v1", "whisper-large-v3"]) is None
    assert match_candidate("a_b", ["a-b", "ab"]) is None


@bounded
@given(st.text() | st.text("{}[]\"':, \nidreason=\\").map(lambda text: text * 3), st.lists(st.text(min_size=1)))
def test_any_text_is_read_without_error(text: str, ids: list[str]) -> None:
    answer = read_answer(text, ids)
    assert answer is None or match_candidate(answer.named, ids) in {None, *ids}


@bounded
@given(st.text(min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_matched_name_is_a_candidate(named: str, ids: list[str]) -> None:
    assert match_candidate(named, ids) in {None, *ids}
    assert match_candidate(ids[0], ids) == ids[0]
