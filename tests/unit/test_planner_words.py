"""Reading of requests: content, file names, sentences and parameters."""

from typing import Any

import pytest

from services.planner.embedded.clauses import sentences
from services.planner.embedded.parameters import parameters
from services.planner.embedded.patterns import lexicon
from services.planner.embedded.payloads import with_pasted
from services.planner.embedded.resources import resources
from services.planner.embedded.wording import read
from services.planner.task_spec import Parameter, Spec
from tests.support.plans import STANDARD, plan_request


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Say 'it's late' now", ["it's late"]),
        ("Say “good night” and «bonsoir»", ["good night", "bonsoir"]),
        ("Don't stop, it's John's", []),
        ("```python\nprint(1)\n``` summarize", ["print(1)"]),
        ("Summarize: A b c. D e f.", ["A b c. D e f."]),
        ("Translate into French: Good day. Then read it aloud.", ["Good day."]),
        ("Do two things: read sign.png and blur it", []),
        ("Summarize this text\n\n" + "Long ago there was a king. " * 9, [("Long ago there was a king. " * 9).strip()]),
        ("A short story.\nIt has two lines.\n\nSummarize the text above", ["A short story.\nIt has two lines."]),
        ("What is in 'sign.png'?", []),
    ],
)
def test_content_is_separated_from_instructions(text: str, content: list[str]) -> None:
    request = plan_request(text, ["sign.png"])
    wording = with_pasted(read(text, resources(request)), lexicon())
    assert [payload.text for payload in wording.payloads] == content
    assert len(wording.masked) == len(text)


@pytest.mark.parametrize(
    ("text", "mentioned", "missing"),
    [
        ("Read sign.png", ["sign.png"], []),
        ("read 'SIGN.PNG' and my photo (1).jpg", ["SIGN.PNG", "my photo (1).jpg"], []),
        ("read file1", ["file1"], []),
        ("read other-sign.png", [], ["other-sign.png"]),
        ("read https://example.com/a/sign.png", ["https://example.com/a/sign.png"], []),
        ("see https://example.com/other.png.", [], ["https://example.com/other.png"]),
        ("version 2.5 of e.g. this", [], []),
        ("save it as out.png", [], []),
    ],
)
def test_file_names_are_recognized(text: str, mentioned: list[str], missing: list[str]) -> None:
    request = plan_request(text, ["sign.png", "my photo (1).jpg"])
    mentions = read(text, resources(request)).mentions
    assert [text[mention.start : mention.end] for mention in mentions if mention.resource] == mentioned
    assert [
        text[mention.start : mention.end] for mention in mentions if not (mention.resource or mention.target)
    ] == missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read it. Blur it!", ["read it.", "blur it!"]),
        ("1. Read it\n2. Blur it", ["1. read it", "2. blur it"]),
        ("Use Dr. No, e.g. this one. Go", ["use dr. no, e.g. this one.", "go"]),
        ("  \n ", []),
    ],
)
def test_sentences_are_split(text: str, expected: list[str]) -> None:
    masked = read(text, ()).masked
    assert [masked[start:end].strip() for start, end in sentences(masked)] == expected


@pytest.mark.parametrize(
    ("task", "text", "expected"),
    [
        ("translation", "translate it from german to english", {"source_language": "de", "target_language": "en"}),
        ("translation", "translate this into brazilian portuguese", {"target_language": "pt-BR"}),
        ("translation", "how do you say that in japanese", {"target_language": "ja"}),
        ("text-to-speech", "slowly, female voice, in french", {"language": "fr", "speed": 0.75, "voice": "female"}),
        ("text-to-speech", "read it at 3x speed", {}),
        ("automatic-speech-recognition", "transcribe this german recording", {"language": "de"}),
        ("summarization", "summarize it in 50 words", {"max_length": 50}),
        ("summarization", "in at least twelve words, at most 30 words", {"max_length": 30, "min_length": 12}),
        ("text-to-image", "a fox, 640x480, seed 7", {"width": 640, "height": 480, "seed": 7}),
        ("image-classification", "the top 3 labels", {"top_k": 3}),
        ("object-detection", "with a confidence above 70%", {"threshold": 0.7}),
        ("image-super-resolution", "make it twice as large", {"scale": 2.0}),
        ("text-to-audio", "two minutes of rain", {"duration": 120.0}),
    ],
)  # fmt: skip
def test_parameters_are_read_within_their_schema(task: str, text: str, expected: dict[str, Any]) -> None:
    assert parameters(STANDARD[task], text) == expected


@pytest.mark.parametrize(
    ("json_schema", "text", "value"),
    [
        ('{"type":"integer"}', "with 5 rounds", 5),
        ('{"type":"integer"}', "rounds: 5", 5),
        ('{"type":"integer","maximum":3}', "with 5 rounds", None),
        ('{"enum":["slow","fast"]}', "please go fast", "fast"),
        ('{"type":"boolean"}', "without rounds", False),
        ('{"type":"string"}', "rounds is abc", "abc"),
        ('{"type":"integer"}', "as you like", None),
        ("[]", "with 5 rounds", None),
        ("{", "with 5 rounds", None),
    ],
)
def test_unknown_parameter_is_read_by_its_name(json_schema: str, text: str, value: object) -> None:
    spec = Spec("game", parameters=(Parameter("rounds", json_schema),))
    assert parameters(spec, text) == ({} if value is None else {"rounds": value})
