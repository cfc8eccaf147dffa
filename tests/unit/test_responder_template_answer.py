"""Template answers."""

from typing import Any

import pytest

from services.responder.markdown import MAX_TEXT_LENGTH, escape_markdown, format_size, quote
from services.responder.responder import MAX_CHUNK_LENGTH, remaining_answer, split_text
from services.responder.run_summary import Artifact, Failure, Json, Note, NoteKind, RunSummary, State, Task
from services.responder.template_answer import compose

SPEECH = Artifact("speech.wav", "audio/wav", 120_345)
ALOUD = "Read the text in this image aloud"


def done(number: int, name: str, outputs: dict[str, Any], **fields: Any) -> Task:
    return Task(number, name, State.SUCCEEDED, outputs=outputs, **fields)


def answer(*tasks: Task, **fields: Any) -> str:
    return "\n\n".join(compose(RunSummary("request", tasks, **fields)))


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


def test_answer_states_results_then_process() -> None:
    assert answer(READ, SPOKEN, MOOD) == (
        "sign.png says:\n\n> We are happy\n> to see you!\n\n"
        "Read aloud in speech.wav (recording, 120 KB).\n\n"
        "Whether it sounds happy: **positive** (81%; then neutral 17%).\n\n"
        "**How it was done**\n\n"
        "1. image-to-text: rapidocr (lite), 0.91 s\n"
        "2. text-to-speech: espeak-ng, 2.0 s → speech.wav (recording, 120 KB)\n"
        "3. text-classification: done"
    )


def test_intermediate_result_is_omitted() -> None:
    summary = done(2, "summarization", {"text": "Short."}, source=ALOUD, needs=frozenset({1}))
    text = answer(READ, summary)
    assert text.startswith("Summary: “Short.”")
    assert "We are happy" not in text
    assert "1. image-to-text" in text


def test_answer_from_a_rough_transcript_says_so() -> None:
    heard = done(
        1,
        "automatic-speech-recognition",
        {"text": "come at six", "details": Json({"quality": "rough", "confidence": 0.2})},
        source="when",
    )
    found = done(
        2,
        "question-answering",
        {"text": "six", "details": Json({"answer": "six", "score": 0.9})},
        source="when",
        needs=frozenset({1}),
    )
    assert answer(heard, found).startswith("**six** The transcript is rough: this may be wrong.")


def test_step_numbers_survive_markdown_when_a_task_failed() -> None:
    failed = Task(2, "text-to-speech", State.FAILED, failure=Failure("no voice"))
    text = answer(READ, failed, MOOD)
    assert "- 1\\. image-to-text: rapidocr (lite), 0.91 s\n- 3\\. text-classification: done" in text


def test_step_numbers_of_a_follow_up_continue() -> None:
    assert "4. translation: done" in answer(done(4, "translation", {"text": "bonjour"}))


def test_results_of_several_files_name_their_files() -> None:
    pull = done(2, "image-to-text", {"text": "Pull"}, given=("entrance.png",), source="read them")
    spoken = done(3, "text-to-speech", {"audio": SPEECH}, needs=frozenset({1}))
    mood = done(4, "text-classification", {"labels": Json([{"label": "neutral"}])}, needs=frozenset({2}))
    paragraphs = compose(RunSummary("request", (READ, pull, spoken, mood)))
    assert paragraphs[1] == "entrance.png says: “Pull”"
    assert paragraphs[2] == "sign.png: Read aloud in speech.wav (recording, 120 KB)."
    assert paragraphs[3].startswith("entrance.png: ")


def test_result_of_the_only_file_does_not_repeat_its_name() -> None:
    assert "sign.png: " not in answer(READ, SPOKEN, MOOD)


def reading(text: str, *scores: tuple[str, float]) -> Task:
    lines = [{"text": line, "score": score} for line, score in scores]
    return done(1, "image-to-text", {"text": text, "details": Json({"pages": [{"page": 1, "lines": lines}]})})


def test_doubtful_lines_of_a_picture_are_marked() -> None:
    (described,) = compose(
        RunSummary("request", (reading("Total due\n15.29 EUR", ("15.29 EUR", 0.71), ("Total due", 0.99)),))
    )[:1]
    assert "15.29 EUR (?)" in described
    assert "Total due (?)" not in described
    assert "hard to read" in described


def test_doubtful_line_that_occurs_twice_is_marked_once_for_each_low_score() -> None:
    text = answer(reading("4.00\n4.00", ("4.00", 0.99), ("4.00", 0.5)))
    assert text.count("4.00 (?)") == 1


def test_doubtful_line_is_not_marked_within_a_longer_one() -> None:
    assert "(?)" not in answer(reading("14.00", ("4.00", 0.5), ("14.00", 0.99)))


def test_clear_lines_of_a_picture_are_not_marked() -> None:
    text = answer(reading("Total due", ("Total due", 0.97)))
    assert "(?)" not in text
    assert "hard to read" not in text


@pytest.mark.parametrize(
    ("name", "outputs", "fields", "sentence"),
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
            "object-detection",
            {"text": "no faces", "objects": Json([])},
            {"given": ("a.jpg",), "source": "count the apples"},
            "The model that looked finds only faces: it cannot find anything else in a.jpg.",
        ),
        (
            "text-classification",
            {"labels": Json([{"label": "positive"}, {"label": "negative"}])},
            {"source": "Is this spam?"},
            "cannot tell whether something is spam: it tells positive and negative.",
        ),
        (
            "audio-to-audio",
            {"audio": Artifact("a-denoised.wav", "audio/wav", 9)},
            {"source": "make it sound like a woman"},
            "the model that ran cannot change anything else.",
        ),
        (
            "question-answering",
            {"text": "The text does not say.", "details": Json({"answer": "", "score": 0.0})},
            {"question": "Who is it?", "given": ("a.txt",)},
            "I found no answer to “Who is it?” in a.txt.",
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
        (
            "text-classification",
            {"labels": Json([{"label": "negative", "score": 0.51}, {"label": "neutral", "score": 0.44}])},
            {"source": "is he angry?"},
            "**negative** (51%; then neutral 44%). This is a guess: it is only 51% sure.",
        ),
        (
            "object-detection",
            {"text": "3 people", "objects": Json([])},
            {"given": ("a.jpg",), "source": "how many women are there"},
            "a.jpg shows 3 people. The model that looked cannot tell them apart.",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "TIME", "text": "7:10"}])},
            {"given": ("bus.png",), "source": "list the prices"},
            "Amounts of money could not be found in bus.png.",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "DATE", "text": "10월 18일"}])},
            {"given": ("invite.txt",), "source": "전화번호가 뭐예요?"},
            "Phone numbers could not be found in invite.txt.",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "DATE", "text": "6 de junio"}])},
            {"given": ("carta.txt",), "source": "which names are in it"},
            "Names could not be found in carta.txt.",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "DATE", "text": "3 May"}, {"entity": "EMAIL", "text": "a@b.example"}])},
            {"source": "which addresses for emails are in here"},
            "Found:\n\n- e-mail addresses: a@b.example\n\n",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "LOC", "text": "Ghent"}, {"entity": "PER", "text": "Bo", "score": 0.9}])},
            {"source": "list the towns in this mail"},
            "Found:\n\n- places: Ghent\n\nIt is not certain that these are all places: the model that looked may",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "PER", "text": name, "score": 0.9} for name in ("Bo Lee", "Lee", "Ann")])},
            {"source": "who is mentioned?"},
            "Found:\n\n- people: Bo Lee, Ann\n\n",
        ),
        (
            "token-classification",
            {"entities": Json([{"entity": "DATE", "text": "3 May"}, {"entity": "PER", "text": "Ann"}])},
            {"source": "names and daets, please"},
            "- dates: 3 May\n- people: Ann",
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
        ("silence", {}, {}, "silence completed without output."),
        ("text-classification", {"labels": "broken", "text": "positive"}, {}, "text-classification: “positive”"),
    ],
)
def test_result_is_described_by_task(name: str, outputs: dict[str, Any], fields: dict[str, Any], sentence: str) -> None:
    assert sentence in answer(done(1, name, outputs, **fields)).partition("**How it was done**")[0]


def test_failure_states_reason_remedy_and_skipped_tasks() -> None:
    failed = Task(2, "text-to-speech", State.FAILED, source=ALOUD, failure=Failure("no voice", "install one"))
    skipped = Task(3, "audio-to-audio", State.SKIPPED, source="clean it", needs=frozenset({2}))
    text = answer(READ, failed, skipped)
    assert "Not everything could be done" in text
    assert text.endswith(
        "**What could not be done**\n\n"
        f"- text-to-speech (“{ALOUD}”) failed: no voice. Remedy: install one.\n"
        "- audio-to-audio (“clean it”) was not started: it needs the result of text-to-speech (task 2)."
    )


def test_output_of_failed_task_is_not_shown() -> None:
    failed = Task(1, "image-to-text", State.FAILED, outputs={"text": "half"}, failure=Failure("broken"))
    text = answer(failed, Task(2, "summarization", State.OPEN))
    assert text.startswith("None of this could be done.")
    assert "half" not in text
    assert "How it was done" not in text
    assert "- summarization did not come to an end." in text


def test_reused_result_is_marked() -> None:
    reused = Task(1, "summarization", State.REUSED, outputs={"text": "Short."}, model="lite/textrank", seconds=3.0)
    assert "1. summarization: lite/textrank, result of an earlier run" in answer(reused)


@pytest.mark.parametrize(
    ("notes", "failure", "sentence"),
    [
        ([Note(NoteKind.MISSING, "Send a picture.")], None, "Send a picture."),
        ([Note(NoteKind.CHAT, "You are welcome.")], None, "You are welcome."),
        ([], Failure("the planner is away", "try again"), "the planner is away. try again."),
        ([Note(NoteKind.MISSING, "Send a picture.")], Failure("Send a picture.", "say more"), "Send a picture."),
        ([], None, "Nothing came of this request."),
    ],
)
def test_answer_without_tasks_states_notes_and_failure(
    notes: list[Note], failure: Failure | None, sentence: str
) -> None:
    text = answer(notes=tuple(notes), failure=failure)
    assert text.count(sentence) == 1


def test_unused_file_is_stated_between_results_and_process() -> None:
    text = answer(READ, notes=(Note(NoteKind.UNUSED_FILE, "Not used: a.png."),))
    assert text.index("sign.png says") < text.index("Not used: a.png.") < text.index("**How it was done**")
    assert "could not be done" not in text


def test_failure_of_run_is_stated_after_results() -> None:
    assert answer(READ, failure=Failure("the deadline has passed")).endswith("- the deadline has passed.")


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
def test_result_text_is_escaped(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown
    assert shown in answer(done(1, "summarization", {"text": text}))


def test_file_name_stays_on_one_line() -> None:
    text = answer(done(1, "text-to-speech", {"audio": Artifact("a\n\n# Big [x](y)", "audio/wav", 1)}))
    assert "a # Big \\[x](y) (recording, 1 bytes)" in text


def test_long_text_is_truncated_with_location_of_complete_text() -> None:
    text = quote("word " * 1_000, "output `text` of task 1")
    assert len(text) < MAX_TEXT_LENGTH + 200
    assert "of 4,999 characters; the complete text is output `text` of task 1" in text


@pytest.mark.parametrize(
    ("count", "formatted"), [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (25_400_000, "25 MB")]
)
def test_size_is_formatted(count: int, formatted: str) -> None:
    assert format_size(count) == formatted


# ---------------------------------------------------------------- continuation


@pytest.mark.parametrize("length", [0, 1, 40, 200, 10_000])
def test_partial_answer_is_continued_without_repetition(length: int) -> None:
    whole = remaining_answer(RunSummary("request", (READ, SPOKEN, MOOD)))
    sent = whole[:length]
    assert sent + remaining_answer(RunSummary("request", (READ, SPOKEN, MOOD), sent=sent)) == whole


def test_partial_llm_answer_is_ended_with_unmentioned_results() -> None:
    rest = remaining_answer(RunSummary("request", (READ, SPOKEN), sent="The sign in your picture"))
    assert rest.startswith("\n\nThe answer above was interrupted; the remaining results follow")
    assert "sign.png says:" in rest
    assert "How it was done" not in rest


def test_chunks_make_complete_answer() -> None:
    text = "A line.\n\n" + "long " * 500 + "\nend"
    chunks = list(split_text(text))
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= MAX_CHUNK_LENGTH
