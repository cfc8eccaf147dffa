"""Data of a run in the prompt of an answer, and its token budget."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.responder import evidence
from services.responder.evidence import split_budget, summarize, truncate_to_tokens
from services.responder.markdown import shorten
from services.responder.run_summary import Artifact, Failure, Json, RunSummary, State, Task, Turn


def count(text: str) -> int:
    """Counts a token per four characters."""
    return -(-len(text) // 4)


def done(number: int, **fields: Any) -> Task:
    return Task(number, "summarization", State.SUCCEEDED, **fields)


@pytest.mark.parametrize(
    ("data", "summary"),
    [
        ([{"label": "cat", "score": 0.98765}], 'cat × 1: {"score": 0.988}'),
        (
            [{"label": "cat", "box": [1.25, 300.7]}] * 7,
            "cat × 7: " + "; ".join(['{"box": [1.25, 301]}'] * 5) + "; 2 more like these",
        ),
        (
            [{"entity": "PER", "text": "Ann"}, {"entity": "ORG", "text": "UN"}],
            'PER × 1: {"text": "Ann"}\nORG × 1: {"text": "UN"}',
        ),
        ([{"label": str(n)} for n in range(30)], "\n".join(f"{n} × 1" for n in range(20)) + "\n10 more labels"),
        (list(range(25)), str([*range(20), "… 5 more"]).replace("'", '"')),
        ({"a": {"b": [True, None, "x"]}}, '{"a": {"b": [true, null, "x"]}}'),
        ([{"label": "cat"}, {"label": 3}], '[{"label": "cat"}, {"label": 3}]'),
        ([[[[[[[[1]]]]]]]], '[[[[[["…"]]]]]]'),
        (float("inf"), "Infinity"),
        ([], "[]"),
        ("text", '"text"'),
    ],
)  # fmt: skip
def test_structured_output_is_summarized(data: Any, summary: str) -> None:
    assert summarize(data) == summary


def test_summary_of_structured_output_is_short() -> None:
    assert len(summarize({str(n) * 99: ["x" * 9_999] * 999 for n in range(999)})) < 250_000
    assert len(summarize([{"label": "x" * 9_999, "y": "z" * 9_999}] * 999)) < 4_000


@given(st.text(max_size=300), st.integers(-5, 100))
def test_truncated_text_fits_limit_and_keeps_both_ends(text: str, tokens: int) -> None:
    fit = truncate_to_tokens(text, tokens, count)
    assert count(fit) <= max(tokens, 0)
    assert fit == text or count(text) > tokens


def test_truncation_removes_the_middle() -> None:
    assert shorten("a" * 60 + "b" * 60, 30) == "a" * 20 + " […90 characters left out…] " + "b" * 10


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0.1, 9)), max_size=9), st.integers(0, 900))
def test_shares_fit_budget_and_use_all_of_it(requests: list[tuple[int, float]], budget: int) -> None:
    needed, weights = [need for need, _ in requests], [weight for _, weight in requests]
    given_ = split_budget(needed, weights, budget)
    assert sum(given_) <= budget
    assert all(got <= need for got, need in zip(given_, needed, strict=True))
    assert given_ == needed or sum(given_) >= budget - len(needed)


def test_small_run_is_complete_in_evidence() -> None:
    speech = Artifact("speech.wav", "audio/wav", 120_345)
    read = Task(
        1, "image-to-text", State.SUCCEEDED, "Read it", {"text": "Exit", "details": Json({"pages": 1})},
        given=("sign.png",), model="rapidocr", seconds=0.512,
    )  # fmt: skip
    spoken = Task(2, "text-to-speech", State.REUSED, outputs={"audio": speech}, needs=frozenset({1}), question="Why?")
    failed = Task(3, "translation", State.FAILED, outputs={"text": "half"}, failure=Failure("broken"))
    assert evidence.results(RunSummary("", (read, spoken, failed)), 2_000, count).text == (
        "task 1: image-to-text, done by rapidocr in 0.51 s\nasked for by: Read it\nmade from: sign.png\n"
        'text: Exit\ndetails: {"pages": 1}\n\n'
        "task 2: text-to-speech, taken from an earlier run\nquestion: Why?\nmade from: task 1\n"
        "made: artifact:task2.audio is speech.wav (recording, 120 KB)\n\n"
        "task 3: translation, failed"
    )


@pytest.mark.parametrize("budget", [100, 300, 1_000, 3_000])
def test_results_fit_budget_and_state_omissions(budget: int) -> None:
    tasks = tuple(
        done(
            n, outputs={"text": f"RESULT{n} " + "word " * 400, "data": Json(list(range(99)))}, needs=frozenset({n - 1})
        )
        for n in range(1, 100)
    )
    given_ = evidence.results(RunSummary("", tasks), budget, count)
    assert count(given_.text) <= budget + 40
    assert given_.left_out > 0
    assert "task 99" in given_.text
    assert ", omitted)" in given_.text


def test_final_text_gets_largest_share() -> None:
    text = "word " * 2_000
    first, last = done(1, outputs={"text": text}), done(2, outputs={"text": text}, needs=frozenset({1}))
    text = evidence.results(RunSummary("", (first, last)), 1_000, count).text
    before, after = text.split("task 2:")
    assert len(after) > 3 * len(before)


def test_newest_turns_and_first_files_are_included() -> None:
    history = [Turn(by_user=n % 2 == 0, text=f"turn {n} " + "word " * 20) for n in range(50)]
    before = evidence.conversation(history, 300, count)
    assert before.text.startswith("user: turn 4")
    assert "assistant: turn 49" in before.text
    assert before.left_out == 50 - before.text.count("turn")
    sent = evidence.files({f"file{n}": Artifact(f"{n}.png", "image/png", 9) for n in range(1, 99)}, 100, count)
    assert sent.text.startswith("artifact:file1 is 1.png (picture, 9 bytes)\n")
    assert sent.text.endswith(f"and {sent.left_out} more files")
