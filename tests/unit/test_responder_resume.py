"""Resumed answers and their endings."""

from dataclasses import replace

import pytest

from services.responder.resume import (
    FINISHED,
    INTERRUPTED,
    LENGTH_LIMIT,
    STOPPED_EARLY,
    RepetitionFilter,
    ending,
    rest_of_template_answer,
    resume_point,
)
from services.responder.run_summary import Failure, Note, NoteKind, RunSummary, State, Task
from services.responder.template_answer import render_answer

READ = Task(1, "image-to-text", State.SUCCEEDED, outputs={"text": "Exit"})
FAILED = Task(2, "text-to-speech", State.FAILED, source="aloud", failure=Failure("no voice", "install one"))
SKIPPED = Task(3, "audio-to-audio", State.SKIPPED, needs=frozenset({2}), failure=Failure("it was skipped"))
CANCELLED = Task(4, "translation", State.CANCELLED)
UNUSED = Note(NoteKind.UNUSED_FILE, "Not used: a.png.")


@pytest.mark.parametrize(
    ("text", "is_missing"),
    [
        ("It says “Exit”. There is _no voice_!", False),
        ("It says Exit, in a piano voice.", True),
        ("It says Exit; text-to-speech failed.", True),
        ("Kein Ton: „no voice“.", False),
    ],
)
def test_failure_counts_as_mentioned_only_with_its_message(text: str, is_missing: bool) -> None:
    end = ending(RunSummary("", (READ, FAILED)), FINISHED, text)
    assert ("no voice" in end) == is_missing


def test_ending_lists_all_failures() -> None:
    summary = RunSummary("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Failure("too late"))
    assert ending(summary, FINISHED, "Exit.") == (
        "\n\nNot used: a.png.\n\n**What could not be done**\n\n"
        "- text-to-speech (“aloud”) failed: no voice. Remedy: install one.\n"
        "- audio-to-audio was not started: it needs the result of text-to-speech (task 2).\n"
        "- translation was cancelled.\n"
        "- too late.\n"
    )


def test_ending_after_complete_ending_is_empty() -> None:
    summary = RunSummary("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Failure("too late"))
    assert ending(summary, FINISHED, ending(summary, FINISHED, "Exit.")) == ""


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
        rest = rest_of_template_answer(replace(summary, sent=text[:length]))
        assert rest is not None
        assert text[:length] + rest == text


def test_answer_started_by_llm_is_not_resumed_as_template_answer() -> None:
    assert rest_of_template_answer(RunSummary("", (READ,))) is None
    assert rest_of_template_answer(RunSummary("", (READ,), sent="The sign")) is None
    assert rest_of_template_answer(RunSummary("", (READ,), sent=f"The sign\n\n{LENGTH_LIMIT} Or not.")) is None
    assert rest_of_template_answer(RunSummary("", (READ,), sent=render_answer(RunSummary("", (READ,))))) == ""


SENT = "The sign in your picture says “Exit”. It was read by rapid"


def resumed(sent: str, *pieces: str) -> str:
    stream = RepetitionFilter(sent)
    return "".join([stream.add(piece) for piece in pieces]) + stream.end()


@pytest.mark.parametrize(
    ("sent", "continuation", "complete"),
    [
        (SENT, "rapidocr in 0.5 s.", "… It was read by rapidocr in 0.5 s."),
        (SENT, " rapidocr in 0.5 s.", "… It was read by rapidocr in 0.5 s."),
        (SENT, "It was read by rapidocr.", "… It was read by rapidocr."),
        (SENT, f"{SENT}ocr.", "… It was read by rapidocr."),
        (SENT, "an engine.", "… It was read by rapid an engine."),
        (SENT, "\n\nThat is all.", "… It was read by rapid\n\nThat is all."),
        (SENT, "DONE", "… It was read by rapid"),
        (SENT, "DONE.\n", "… It was read by rapid"),
        (SENT, "", "… It was read by rapid"),
        (SENT, SENT, "… It was read by rapid"),
        ("Read by ", " rapidocr", "Read by rapidocr"),
        ("It is the", "every day sign", "It is the every day sign"),
        ("It is 3", "DONUTS", "It is 3 DONUTS"),
        ("看板には", "看板には「出口」とあります。", "看板には「出口」とあります。"),
        ("看板には「出", "口」とあります。", "看板には「出口」とあります。"),
        ("", "Nothing was sent.", "Nothing was sent."),
    ],
)
def test_resumed_answer_repeats_nothing_and_keeps_words_whole(sent: str, continuation: str, complete: str) -> None:
    expected = complete.replace("… It was read by rapid", SENT)
    for split in range(len(continuation) + 1):
        assert sent + resumed(sent, continuation[:split], continuation[split:]) == expected
    assert sent + resumed(sent, *continuation) == expected


def test_new_text_is_emitted_at_once() -> None:
    stream = RepetitionFilter(SENT)
    assert [stream.add("It was w"), stream.add("ritten")] == [" It was w", "ritten"]


@pytest.mark.parametrize(
    ("sent", "prefix"),
    [("The sign says Ex", "The sign says "), ("The sign. ", "The sign. "), ("看板には", "看板には"), ("", "")],
)
def test_resume_point_is_at_word_boundary(sent: str, prefix: str) -> None:
    assert resume_point(sent) == prefix


TEXT = "The sign says “Exit”.\n\nIt was read, then read aloud: see speech.wav.\n\n- one\n- two and a half\n"


@pytest.mark.parametrize("length", range(1, len(TEXT) + 1))
def test_answer_resumes_at_any_position(length: int) -> None:
    sent = TEXT[:length]
    for continuation in (TEXT, TEXT[len(resume_point(sent)) :]):
        assert sent + resumed(sent, *continuation) == TEXT
