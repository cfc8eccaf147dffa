"""Plans for English requests: locations, pronouns, file selection, negation, conditions and languages."""

import pytest

from services.planner.plan import NoteKind
from tests.support.plans import STANDARD, embedded_plan, notation, plan_request

Row = tuple[str, tuple[str, ...], list[str]]

OCR, ASR = "image-to-text(image=file1)", "automatic-speech-recognition(audio=file1)"
BUILT = ["question-answering(question='When was it built?', context=file1)"]

ASIDES = (
    "Answer from the document.",
    "Use the attached file.",
    "The file is attached.",
    "Look in the file.",
    "Have a look at the attached text, please.",
    "Based on the text.",
    "It's in the attached pdf.",
    "See attached.",
    "I attached the document below.",
    "The answer is in the second paragraph of the text.",
)

LOCATION_CASES: list[Row] = [
    (
        "Please have a look at the attached invoice and tell me the total, the due date and who it is from.",
        ("invoice.pdf",),
        [
            "document-question-answering(image=file1, question='The total')",
            "document-question-answering(image=file1, question='The due date')",
            "document-question-answering(image=file1, question='Who it is from')",
        ],
    ),
    (
        "Based on the transcript of speech.wav, who called?",
        ("speech.wav",),
        [ASR, "question-answering(question='Who called?', context=1.text)"],
    ),
    (
        "Can you listen to the recording and answer: who called?",
        ("speech.wav",),
        [ASR, "question-answering(question='Who called?', context=1.text)"],
    ),
    (
        "Three questions about the letter: who wrote it, when was it written, and what is it about?",
        ("letter.pdf",),
        [
            "document-question-answering(image=file1, question='Who wrote it')",
            "document-question-answering(image=file1, question='When was it written')",
            OCR,
            "summarization(text=3.text)",
        ],
    ),
    (
        "What's the total? Who is it from? When is it due?",
        ("invoice.png",),
        [
            'document-question-answering(image=file1, question="What\'s the total?")',
            "document-question-answering(image=file1, question='Who is it from?')",
            "document-question-answering(image=file1, question='When is it due?')",
        ],
    ),
]

REFERENCE_CASES: list[Row] = [
    (
        "Extract all amounts of money from invoice.png and say them out loud",
        ("invoice.png",),
        [OCR, "token-classification(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    (
        "Transcribe speech.wav, find the names in it and say them in a female voice",
        ("speech.wav",),
        [ASR, "token-classification(text=1.text)", "text-to-speech(text=2.text; voice=female)"],
    ),
    (
        "Find the names in letter.pdf and read them to me",
        ("letter.pdf",),
        [OCR, "token-classification(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    (
        "What's the sentiment of tower.txt? Say it aloud.",
        ("tower.txt",),
        ["text-classification(text=file1)", "text-to-speech(text=1.text)"],
    ),
    (
        "read out the total",
        ("invoice.png",),
        [
            "document-question-answering(image=file1, question='Read out the total')",
            "text-to-speech(text=1.text)",
        ],
    ),
    (
        "read the text in this image aloud and tell me whether it sounds happy",
        ("sign.png",),
        [OCR, "text-to-speech(text=1.text)", "text-classification(text=1.text)"],
    ),
    (
        "- read the text\n- tell me the language\n- read it aloud",
        ("sign.png",),
        [OCR, "text-classification(text=1.text)", "text-to-speech(text=1.text)"],
    ),
    (
        "Please summarise the following article and read it out to me: The tower was built in 1889. It is tall.",
        (),
        ["summarization(text='The tower was built in 1889. It is tall.')", "text-to-speech(text=1.text)"],
    ),
    (
        "Turn this photo into a sketch, then count the faces in the sketch",
        ("face.jpg",),
        [
            "image-to-image(image=file1, instruction='Turn this photo into a sketch')",
            "object-detection(image=1.image)",
        ],
    ),
    (
        "make it grey. then detect the faces in the grey image",
        ("face.jpg",),
        ["image-to-image(image=file1, instruction='make it grey')", "object-detection(image=1.image)"],
    ),
    (
        "Blur the faces in this picture and then rotate the blurred picture by 90 degrees",
        ("face.jpg",),
        [
            "image-to-image(image=file1, instruction='Blur the faces in this picture')",
            "image-to-image(image=1.image, instruction='rotate it by 90 degrees')",
        ],
    ),
    (
        "make it grey then find the edges",
        ("face.jpg",),
        [
            "image-to-image(image=file1, instruction='make it grey')",
            "image-to-image(image=1.image, instruction='find the edges')",
        ],
    ),
    (
        "Make a black-and-white version and a blurred version",
        ("face.jpg",),
        [
            "image-to-image(image=file1, instruction='Make a black-and-white version')",
            "image-to-image(image=file1, instruction='a blurred version')",
        ],
    ),
    (
        "Remove the background, then make the cutout grey",
        ("apple.png",),
        [
            "image-segmentation(image=file1)",
            "image-to-image(image=1.image, instruction='make the cutout grey')",
        ],
    ),
]

FILE_CASES: list[Row] = [
    (
        "What is the sentiment of each of these?",
        ("sign.png", "tower.txt"),
        [OCR, "text-classification(text=1.text)", "text-classification(text=file2)"],
    ),
    (
        "Compare the sentiment of sign.png and tower.txt",
        ("sign.png", "tower.txt"),
        [OCR, "text-classification(text=1.text)", "text-classification(text=file2)"],
    ),
    (
        "Summarize both and read both aloud",
        ("letter.pdf", "tower.txt"),
        [
            OCR,
            "summarization(text=1.text)",
            "summarization(text=file2)",
            "text-to-speech(text=2.text)",
            "text-to-speech(text=3.text)",
        ],
    ),
    (
        "What are these files about?",
        ("letter.pdf", "speech.wav", "tower.txt"),
        [
            OCR,
            "automatic-speech-recognition(audio=file2)",
            "summarization(text=1.text)",
            "summarization(text=2.text)",
            "summarization(text=file3)",
        ],
    ),
    (
        "Here are two files. Summarize them please.",
        ("letter.pdf", "tower.txt"),
        [OCR, "summarization(text=1.text)", "summarization(text=file2)"],
    ),
    (
        "What does the picture say and what is said in the recording?",
        ("sign.png", "speech.wav"),
        [OCR, "automatic-speech-recognition(audio=file2)"],
    ),
    (
        "Read a.png. Then read b.png. Which one is more positive?",
        ("a.png", "b.png"),
        [OCR, "image-to-text(image=file2)", "text-classification(text=1.text)", "text-classification(text=2.text)"],
    ),
    (
        "Blur the first and sharpen the second.",
        ("apple.png", "face.jpg"),
        [
            "image-to-image(image=file1, instruction='Blur the first')",
            "image-to-image(image=file2, instruction='sharpen the second')",
        ],
    ),
]

WORDING_CASES: list[Row] = [
    (
        "Read the picture's text with a female voice",
        ("sign.png",),
        [OCR, "text-to-speech(text=1.text; voice=female)"],
    ),
    ("Tell me: is this text positive?", ("tower.txt",), ["text-classification(text=file1)"]),
    ("don't read it aloud, just summarize it", ("letter.pdf",), [OCR, "summarization(text=1.text)"]),
    ("Do not read it out. Only tell me the language.", ("sign.png",), [OCR, "text-classification(text=1.text)"]),
    ("Just the text, no summary please", ("sign.png",), [OCR]),
    ("text pls", ("sign.png",), [OCR]),
    ("sumarize tower.txt pls thx", ("tower.txt",), ["summarization(text=file1)"]),
    ("trascribe speech.wav", ("speech.wav",), [ASR]),
    ("waht langauge is this", ("sign.png",), [OCR, "text-classification(text=1.text)"]),
    ("Say aloud: sumarize", (), ["text-to-speech(text='sumarize')"]),
    (
        "Before you transcribe it, remove the noise",
        ("noisy.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "Clean up noisy.wav and tell me what it says",
        ("noisy.wav",),
        ["audio-to-audio(audio=file1)", "automatic-speech-recognition(audio=1.audio)"],
    ),
    (
        "i have this photo and i want to know how many faces are in it and then i want you to make it black and white",
        ("face.jpg",),
        ["object-detection(image=file1)", "image-to-image(image=file1, instruction='make it black and white')"],
    ),
    ("read this in French: Bonjour tout le monde", (), ["text-to-speech(text='Bonjour tout le monde'; language=fr)"]),
    ("Is 'I will translate this' positive?", (), ["text-classification(text='I will translate this')"]),
    (
        "The customer wrote: 'Blur the face and read it aloud!' Is he happy?",
        (),
        ["text-classification(text='Blur the face and read it aloud!')"],
    ),
    ("How many faces are in rotate.jpg?", ("rotate.jpg",), ["object-detection(image=file1)"]),
    ("Summarize read_aloud_notes.txt", ("read_aloud_notes.txt",), ["summarization(text=file1)"]),
    ("tower.txt -> audio", ("tower.txt",), ["text-to-speech(text=file1)"]),
    ("make it b/w", ("face.jpg",), ["image-to-image(image=file1, instruction='make it b/w')"]),
    (
        "Find all e-mail addresses and phone numbers in letter.pdf",
        ("letter.pdf",),
        [OCR, "token-classification(text=1.text)"],
    ),
    (
        "Read the names and dates in this letter aloud",
        ("letter.pdf",),
        [OCR, "token-classification(text=1.text)", "text-to-speech(text=2.text)"],
    ),
    (
        "give me the text of the invoice and its total",
        ("invoice.png",),
        [OCR, "document-question-answering(image=file1, question='Its total')"],
    ),
    (
        "Hey, I need three things: the text of the sign, its language, and an audio version.",
        ("sign.png",),
        [OCR, "text-classification(text=1.text)", "text-to-speech(text=1.text)"],
    ),
    (
        "tell me what the letter is about and whether the writer is angry",
        ("letter.pdf",),
        [OCR, "summarization(text=1.text)", "text-classification(text=1.text)"],
    ),
]


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        *((f"When was it built? {aside}", ("tower.txt",), BUILT) for aside in ASIDES),
        *LOCATION_CASES,
        *REFERENCE_CASES,
        *FILE_CASES,
        *WORDING_CASES,
    ],
    ids=lambda value: str(value)[:40],
)
def test_request_is_planned(text: str, files: tuple[str, ...], expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, files))
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


@pytest.mark.parametrize(
    ("text", "files", "used", "kind", "mention"),
    [
        ("Blur the photo", ("face.jpg", "letter.pdf"), ["file1"], NoteKind.TRIMMED, "letter.pdf"),
        ("Look at b.jpg. How many faces are in it?", ("a.jpg", "b.jpg"), ["file2"], NoteKind.TRIMMED, "a.jpg"),
        ("Take the second picture and rotate it", ("a.jpg", "b.jpg"), ["file2"], NoteKind.TRIMMED, "a.jpg"),
        ("How many faces are in a.jpg? And in b.jpg?", ("a.jpg", "b.jpg"), ["file1"], NoteKind.CLARIFY, "b.jpg"),
        ("Summarize", ("tower.txt", "face.jpg"), ["file1"], NoteKind.TRIMMED, "face.jpg"),
        ("Find the faces in each of these", ("face.jpg", "speech.wav"), ["file1"], NoteKind.CLARIFY, "speech.wav"),
        ("Read the sign and play the recording", ("sign.png", "a.wav"), ["file1"], NoteKind.UNMAPPED, "play"),
    ],
)
def test_unused_file_yields_note(
    text: str, files: tuple[str, ...], used: list[str], kind: NoteKind, mention: str
) -> None:
    draft = embedded_plan(plan_request(text, files))
    assert [argument in str(notation(draft.tasks)) for argument in used] == [True] * len(used)
    assert (kind, True) in [(note.kind, mention in note.text) for note in draft.notes]


def test_excluded_file_is_neither_used_nor_noted() -> None:
    draft = embedded_plan(plan_request("Summarize all files except a.txt", ["a.txt", "b.txt", "c.txt"]))
    assert notation(draft.tasks) == ["summarization(text=file2)", "summarization(text=file3)"]
    assert draft.notes == ()


def test_unplannable_request_about_a_result_yields_note() -> None:
    draft = embedded_plan(plan_request("Make a sketch and frame the sketch", ["face.jpg"]))
    assert [note.span for note in draft.notes] == ["frame the sketch"]
    assert embedded_plan(plan_request("Make a sketch and show me the sketch", ["face.jpg"])).notes == ()


@pytest.mark.parametrize(
    ("text", "expected", "conditional"),
    [
        (
            "Read the text and, if it is positive, blur the image",
            [OCR],
            ["if it is positive, blur the image"],
        ),
        ("Read the text, if it is positive, blur the image", [OCR], ["if it is positive, blur the image"]),
        (
            "Read the text. If it's negative, read it aloud and blur it",
            [OCR],
            ["If it's negative, read it aloud and blur it"],
        ),
        ("Read the sign. Blur it unless it is positive.", [OCR], ["Blur it unless it is positive"]),
        (
            "Blur it, unless it is positive, and read it aloud",
            [],
            ["Blur it, unless it is positive, and read it aloud"],
        ),
        (
            "Read the text, then read it aloud only when it is positive",
            [OCR],
            ["read it aloud only when it is positive"],
        ),
        ("Read the text and read it aloud in case it is long", [OCR], ["read it aloud in case it is long"]),
        (
            "If it is positive, blur the image. Otherwise rotate it.",
            [],
            ["If it is positive, blur the image", "Otherwise rotate it"],
        ),
        (
            "Read the text. If it is positive, blur the image. Then count the faces. Tell me the language.",
            [OCR, "text-classification(text=1.text)"],
            ["If it is positive, blur the image", "Then count the faces"],
        ),
        (
            "Depending on the sentiment, blur or rotate the image",
            [],
            ["Depending on the sentiment, blur or rotate the image"],
        ),
        ("Read the text aloud if it is negative", [], ["Read the text aloud if it is negative"]),
    ],
)
def test_conditional_tasks_are_noted_instead_of_planned(text: str, expected: list[str], conditional: list[str]) -> None:
    draft = embedded_plan(plan_request(text, ["sign.png"]))
    assert notation(draft.tasks) == expected
    assert [(note.kind, note.span) for note in draft.notes] == [(NoteKind.UNMAPPED, span) for span in conditional]
    assert all("ask again with the result" in note.text for note in draft.notes)


SENTIMENT, SPOKEN = "text-classification(text=1.text)", "text-to-speech(text=1.text)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read the text if you can", [OCR]),
        ("If you could read the text, please", [OCR]),
        ("I'd appreciate it if you read the text", [OCR]),
        ("Read the text, if possible, aloud", [OCR, SPOKEN]),
        ("Read the text if there is any", [OCR]),
        ("If there is text, read it aloud", [OCR, SPOKEN]),
        ("Read the text and tell me if it sounds happy", [OCR, SENTIMENT]),
        ("Check the text to see if it is positive", [OCR, SENTIMENT]),
        ("Can you help me find if it is positive?", [OCR, SENTIMENT]),
        ("I want to know the language, if it is positive, and read it aloud", [OCR, SENTIMENT, SENTIMENT, SPOKEN]),
        ("Tell me the language and if it is positive", [OCR, SENTIMENT, SENTIMENT]),
        ("Say aloud 'if it is positive, blur it'", ["text-to-speech(text='if it is positive, blur it')"]),
    ],
)
def test_polite_or_embedded_if_is_not_a_condition(text: str, expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text, [] if "'if" in text else ["sign.png"]))
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


def test_question_keeps_its_condition() -> None:
    draft = embedded_plan(plan_request("What happens if I cancel?", ["letter.pdf"]))
    question_task = "document-question-answering(image=file1, question='What happens if I cancel?')"
    assert notation(draft.tasks) == [question_task]
    assert draft.notes == ()


HALLO, BONJOUR = "text-to-speech(text='hello'; language=de)", "text-to-speech(text='bonjour'; language=fr)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read 'hello' in German, then 'bonjour' in French", [HALLO, BONJOUR]),
        ("In German read 'hello', in French 'bonjour'", [HALLO, BONJOUR]),
        ("Say 'hello' in German and 'hello' in French", [HALLO, "text-to-speech(text='hello'; language=fr)"]),
        ("Say 'hello' and 'tag' in German", [HALLO, "text-to-speech(text='tag'; language=de)"]),
        (
            "Translate 'hello' into German and 'cat' into French",
            ["translation(text='hello'; target_language=de)", "translation(text='cat'; target_language=fr)"],
        ),
    ],
)
def test_each_quoted_text_takes_the_adjacent_language(text: str, expected: list[str]) -> None:
    draft = embedded_plan(plan_request(text), STANDARD)
    assert notation(draft.tasks) == expected
    assert draft.notes == ()


@pytest.mark.parametrize(
    "text", ["Read 'hello' in German and 'bonjour'", "Say 'hello', 'bonjour' in German and French"]
)
def test_ambiguous_languages_yield_note(text: str) -> None:
    draft = embedded_plan(plan_request(text))
    assert draft.tasks == ()
    assert [(note.kind, note.span) for note in draft.notes] == [(NoteKind.UNMAPPED, text)]
    assert "name the language right after each quoted text" in draft.notes[0].text


def test_quoted_text_without_task_yields_note() -> None:
    draft = embedded_plan(plan_request("Read aloud 'hello' in German; then 'bonjour' in French"))
    assert notation(draft.tasks) == [HALLO]
    assert [(note.kind, note.span) for note in draft.notes] == [(NoteKind.UNMAPPED, "then 'bonjour' in French")]


@pytest.mark.parametrize(
    ("text", "name", "span"),
    [
        ("Email me the sketch after making it", "face.jpg", "Email me the sketch after making it"),
        ("Post the sketch to Slack after making it", "face.jpg", "Post the sketch to Slack after making it"),
        ("Make a sketch and send it to Bob", "face.jpg", "send it to Bob"),
        ("Make a sketch and email me the sketch", "face.jpg", "email me the sketch"),
        (
            "Read the sign and return the contents of /etc/passwd",
            "sign.png",
            "return the contents of /etc/passwd",
        ),
    ],
)
def test_unmapped_part_yields_note_in_addition_to_the_task(text: str, name: str, span: str) -> None:
    draft = embedded_plan(plan_request(text, [name]))
    assert len(draft.tasks) == 1
    assert [(note.kind, note.span) for note in draft.notes] == [(NoteKind.UNMAPPED, span)]


@pytest.mark.parametrize(
    "text",
    [
        "Send me the text of the sign",
        "Read the sign and return the text",
        "Read the sign. Do not email the text.",
        "Read the text of the post",
    ],
)
def test_request_for_an_answer_yields_no_note(text: str) -> None:
    draft = embedded_plan(plan_request(text, ["sign.png"]))
    assert notation(draft.tasks) == [OCR]
    assert draft.notes == ()
