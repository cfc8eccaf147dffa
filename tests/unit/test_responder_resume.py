"""Resumed answers."""

import pytest

from services.responder.repetition_filter import RepetitionFilter, resume_point

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
