"""Endings of partial answers."""

from dataclasses import replace

import pytest

from services.responder.finish import (
    FINISHED,
    INTERRUPTED,
    LENGTH_LIMIT,
    STOPPED_EARLY,
    ending,
    render_answer,
    rest_of_own_answer,
)
from services.responder.run_summary import Failure, Note, NoteKind, RunSummary, State, Task

READ = Task(1, "image-to-text", State.SUCCEEDED, outputs={"text": "Exit"})
FAILED = Task(2, "text-to-speech", State.FAILED, source="aloud", failure=Failure("no voice", "install one"))
SKIPPED = Task(3, "audio-to-audio", State.SKIPPED, needs=frozenset({2}), failure=Failure("it was skipped"))
CANCELLED = Task(4, "translation", State.CANCELLED)
UNUSED = Note(NoteKind.UNUSED_FILE, "Not used: a.png.")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("It says “Exit”. There is _no voice_!", []),
        ("It says Exit, in a piano voice.", ["no voice"]),
        ("It says Exit; text-to-speech failed.", ["no voice"]),
        ("Kein Ton: „no voice“.", []),
    ],
)
def test_failure_counts_as_mentioned_only_with_its_message(text: str, missing: list[str]) -> None:
    has_more = ending(RunSummary("", (READ, FAILED)), FINISHED, text)
    assert [words for words in ("no voice",) if words in has_more] == missing


def test_ending_lists_all_failures() -> None:
    has_more = ending(
        RunSummary("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Failure("too late")), FINISHED, "Exit."
    )
    assert has_more == (
        "\n\nNot used: a.png.\n\n**What could not be done**\n\n"
        "- text-to-speech (“aloud”) failed: no voice. Remedy: install one.\n"
        "- audio-to-audio was not started: it needs the result of text-to-speech (task 2).\n"
        "- translation was cancelled.\n"
        "- too late.\n"
    )
    assert (
        ending(RunSummary("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Failure("too late")), FINISHED, has_more)
        == ""
    )


def test_ending_after_truncation_does_not_repeat_results() -> None:
    assert (
        ending(RunSummary("", (READ,)), STOPPED_EARLY, "It says “exit”")
        == f"\n\n{STOPPED_EARLY} all results are given above.\n"
    )
    assert "“Exit”" in ending(RunSummary("", (READ,)), INTERRUPTED, "It")
    assert "“Exit”" not in ending(RunSummary("", (READ,)), LENGTH_LIMIT, "It")
    talk = RunSummary("Hi", notes=(Note(NoteKind.CHAT, ""),))
    assert ending(talk, STOPPED_EARLY, "Hel") == f"\n\n{STOPPED_EARLY} ask again for the rest.\n"


@pytest.mark.parametrize("reason", [FINISHED, LENGTH_LIMIT, STOPPED_EARLY, INTERRUPTED])
def test_partial_ending_is_resumed_at_any_position(reason: str) -> None:
    summary = RunSummary("", (READ, FAILED))
    text = "It" + ending(summary, reason, "It")
    for length in range(len(f"It\n\n{reason or '**What could not be done**'}"), len(text) + 1):
        has_more = rest_of_own_answer(replace(summary, sent=text[:length]))
        assert has_more is not None
        assert text[:length] + has_more == text


def test_answer_started_by_llm_is_not_resumed_as_template_answer() -> None:
    assert rest_of_own_answer(RunSummary("", (READ,))) is None
    assert rest_of_own_answer(RunSummary("", (READ,), sent="The sign")) is None
    assert rest_of_own_answer(RunSummary("", (READ,), sent=f"The sign\n\n{LENGTH_LIMIT} Or not.")) is None
    assert rest_of_own_answer(RunSummary("", (READ,), sent=render_answer(RunSummary("", (READ,))))) == ""
