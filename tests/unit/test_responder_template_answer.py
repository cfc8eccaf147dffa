"""The answer without an LLM."""

from typing import Any

import pytest

from services.responder.escape import LONGEST_TEXT, inert, quoted, size
from services.responder.responder import LONGEST_PIECE, pieces, rest
from services.responder.run_summary import Account, Artifact, Json, Remark, RemarkKind, State, Task, Trouble
from services.responder.template_answer import composed

SPEECH = Artifact("speech.wav", "audio/wav", 120_345)
ALOUD = "Read the text in this image aloud"


def done(number: int, name: str, outputs: dict[str, Any], **fields: Any) -> Task:
    return Task(number, name, State.SUCCEEDED, outputs=outputs, **fields)


def answer(*tasks: Task, **fields: Any) -> str:
    return "\n\n".join(composed(Account("request", tasks, **fields)))


READ = done(
    1, "image-to-text", {"text": "We are happy\nto see you!"}, source=ALOUD, given=("sign.png",), model="rapidocr",
    expert="lite", seconds=0.91,
)  # fmt: skip
SPOKEN = done(
    2, "text-to-speech", {"audio": SPEECH}, source=ALOUD, needs=frozenset({1}), model="espeak-ng", seconds=2.0
)
MOOD = done(
    3,
    "text-classification",
    {"labels": Json([{"label": "positive", "score": 0.81}, {"label": "neutral", "score": 0.17}]), "text": "positive"},
    source="tell me whether it sounds happy",
    needs=frozenset({1}),
)


def test_the_request_is_answered_first_then_it_says_how() -> None:
    assert answer(READ, SPOKEN, MOOD) == (
        "sign.png says:\n\n> We are happy\n> to see you!\n\n"
        "Read aloud in speech.wav (recording, 120 KB).\n\n"
        "Whether it sounds happy: **positive** (81%; then neutral 17%).\n\n"
        "**How it was done**\n\n"
        "1. image-to-text: rapidocr (lite), 0.91 s\n"
        "2. text-to-speech: espeak-ng, 2.0 s → speech.wav (recording, 120 KB)\n"
        "3. text-classification: done"
    )


def test_what_only_prepared_is_not_told_where_its_use_is() -> None:
    summary = done(2, "summarization", {"text": "Short."}, source=ALOUD, needs=frozenset({1}))
    told = answer(READ, summary)
    assert told.startswith("Summary: “Short.”")
    assert "We are happy" not in told
    assert "1. image-to-text" in told


@pytest.mark.parametrize(
    ("name", "outputs", "fields", "says"),
    [
        ("image-to-text", {"text": "Exit"}, {}, "The picture says: “Exit”"),
        (
            "image-to-text",
            {"text": "No text found.", "details": Json({"pages": [{"page": 1, "lines": []}]})},
            {"given": ("cat.jpg",)},
            "No text was found in cat.jpg.",
        ),
        (
            "automatic-speech-recognition",
            {"text": "good day", "details": Json({"confidence": 0.41, "quality": "rough"})},
            {},
            "Rough transcript, 41% sure: “good day”",
        ),
        (
            "automatic-speech-recognition",
            {"text": "hi", "details": Json({"confidence": 0.5})},
            {},
            "Whisper-class model",
        ),
        ("automatic-speech-recognition", {"text": "hi", "details": Json({"confidence": 0.95})}, {}, "says: “hi”"),
        ("object-detection", {"text": "2 faces", "objects": Json([])}, {"given": ("a.jpg",)}, "a.jpg shows 2 faces."),
        (
            "object-detection",
            {"text": "1 face", "objects": Json([{"label": "face"}]), "image": Artifact("faces.png", "image/png", 9)},
            {},
            "The picture shows 1 face, marked in faces.png (picture, 9 bytes).",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "DATE", "text": "3 May"}, {"entity": "PER", "text": "Ann"}] * 2)},
            {"given": ("letter.pdf",)},
            "Found in letter.pdf:\n\n- dates: 3 May\n- people: Ann",
        ),
        (
            "token-classification",
            {"entities": Json([]), "text": ""},
            {},
            "No names, dates, places or amounts were found",
        ),
        (
            "document-question-answering",
            {"text": "$691.74", "details": Json({"score": 0.9, "page": 2})},
            {"question": "What is the total"},
            "What is the total? **$691.74** (page 2)",
        ),
        (
            "question-answering",
            {"text": "Bo", "details": Json({"score": 0.1})},
            {},
            "This is a guess: it is only 10% sure.",
        ),
        ("translation", {"text": "bonjour"}, {"parameters": {"target_language": "fr"}}, "Translation (fr): “bonjour”"),
        (
            "image-to-image",
            {"image": Artifact("s.png", "image/png", 1_500)},
            {},
            "The new picture is s.png (picture, 1.5 KB).",
        ),
        ("text-generation", {"text": "Once upon a time"}, {}, "“Once upon a time”"),
        ("bird-call", {"text": "a wren"}, {}, "bird-call: “a wren”"),
        ("bird-call", {"labels": Json([{"label": "wren"}])}, {}, 'bird-call, labels: “\\[{"label": "wren"}]”'),
        (
            "map-making",
            {"map": Artifact("m.geo", "application/x-geo", 5)},
            {},
            "made m.geo (application/x-geo, 5 bytes)",
        ),
        ("silence", {}, {}, "silence is done; it gave nothing to show."),
        ("text-classification", {"labels": "broken", "text": "positive"}, {}, "text-classification: “positive”"),
    ],
)
def test_each_kind_of_result_is_told_in_its_own_words(
    name: str, outputs: dict[str, Any], fields: dict[str, Any], says: str
) -> None:
    assert says in answer(done(1, name, outputs, **fields)).partition("**How it was done**")[0]


def test_what_failed_says_why_and_what_would_help_and_what_waited_for_it() -> None:
    failed = Task(2, "text-to-speech", State.FAILED, source=ALOUD, trouble=Trouble("no voice", "install one"))
    skipped = Task(3, "audio-to-audio", State.SKIPPED, source="clean it", needs=frozenset({2}))
    told = answer(READ, failed, skipped)
    assert "Not everything could be done" in told
    assert told.endswith(
        "**What could not be done**\n\n"
        f"- text-to-speech (“{ALOUD}”) failed: no voice. What would help: install one.\n"
        "- audio-to-audio (“clean it”) was not started: it needs the result of text-to-speech (task 2)."
    )


def test_nothing_half_done_is_presented_as_done() -> None:
    failed = Task(1, "image-to-text", State.FAILED, outputs={"text": "half"}, trouble=Trouble("broken"))
    told = answer(failed, Task(2, "summarization", State.OPEN))
    assert told.startswith("None of this could be done.")
    assert "half" not in told
    assert "How it was done" not in told
    assert "- summarization did not come to an end." in told


def test_a_result_taken_from_an_earlier_run_says_so() -> None:
    reused = Task(1, "summarization", State.REUSED, outputs={"text": "Short."}, model="lite/textrank", seconds=3.0)
    assert "1. summarization: lite/textrank, result of an earlier run" in answer(reused)


@pytest.mark.parametrize(
    ("remarks", "trouble", "says"),
    [
        ([Remark(RemarkKind.MISSING, "Send a picture.")], None, "Send a picture."),
        ([Remark(RemarkKind.CHAT, "")], None, "no chat model"),
        ([], Trouble("the planner is away", "try again"), "the planner is away. try again."),
        ([Remark(RemarkKind.MISSING, "Send a picture.")], Trouble("Send a picture.", "say more"), "Send a picture."),
        ([], None, "Nothing came of this request."),
    ],
)
def test_without_tasks_it_says_what_is_to_be_said(remarks: list[Remark], trouble: Trouble | None, says: str) -> None:
    told = answer(remarks=tuple(remarks), trouble=trouble)
    assert told.count(says) == 1


def test_a_file_that_was_not_used_is_told_between_what_came_of_it_and_how() -> None:
    told = answer(READ, remarks=(Remark(RemarkKind.LEFT_OUT, "Not used: a.png."),))
    assert told.index("sign.png says") < told.index("Not used: a.png.") < told.index("**How it was done**")
    assert "could not be done" not in told


def test_the_trouble_of_the_run_is_told_beside_what_was_done() -> None:
    assert answer(READ, trouble=Trouble("the deadline has passed")).endswith("- the deadline has passed.")


# ---------------------------------------------------------------- data stays data


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[click](http://evil)", "\\[click](http://evil)"),
        ("![x](http://evil/p.png)", "!\\[x](http://evil/p.png)"),
        ("<script>alert(1)</script>", "\\<script>alert(1)\\</script>"),
        ("\\[click](http://evil)", "\\\\\\[click](http://evil)"),
        ("\\<script>", "\\\\\\<script>"),
        ("<http://evil>", "\\<http://evil>"),
        ("\x1b[31mred\x07", "\\[31mred"),
        ("abc\u202edef", "abcdef"),
        ("2 * 3 = 6 # so", "2 * 3 = 6 # so"),
    ],
)
def test_nothing_in_a_result_becomes_a_link_or_a_command(text: str, shown: str) -> None:
    assert inert(text) == shown
    assert shown in answer(done(1, "summarization", {"text": text}))


def test_a_name_cannot_break_out_of_its_line() -> None:
    told = answer(done(1, "text-to-speech", {"audio": Artifact("a\n\n# Big [x](y)", "audio/wav", 1)}))
    assert "a # Big \\[x](y) (recording, 1 bytes)" in told


def test_a_long_text_is_cut_and_says_where_the_whole_is() -> None:
    told = quoted("word " * 1_000, "output `text` of task 1")
    assert len(told) < LONGEST_TEXT + 200
    assert "of 4,999 characters; the whole is output `text` of task 1" in told


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (25_400_000, "25 MB")]
)
def test_sizes_are_said_as_people_say_them(count: int, said: str) -> None:
    assert size(count) == said


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("length", [0, 1, 40, 200, 10_000])
def test_an_answer_that_was_begun_is_continued_not_repeated(length: int) -> None:
    whole = rest(Account("request", (READ, SPOKEN, MOOD)))
    sent = whole[:length]
    assert sent + rest(Account("request", (READ, SPOKEN, MOOD), sent=sent)) == whole


def test_an_answer_begun_by_another_hand_is_ended_with_what_it_had_not_told() -> None:
    more = rest(Account("request", (READ, SPOKEN), sent="The sign in your picture"))
    assert more.startswith("\n\nThe answer above was interrupted; what it had not told yet follows")
    assert "sign.png says:" in more
    assert "How it was done" not in more


def test_an_answer_is_told_in_pieces_that_make_the_whole() -> None:
    text = "A line.\n\n" + "long " * 500 + "\nend"
    told = list(pieces(text))
    assert ("".join(told), max(map(len, told)) <= LONGEST_PIECE) == (text, True)
