import json

import pytest

from gateway.openai import prompt_shortcuts
from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, RunSpec, Turn
from tests.bench.parsing import CHAT_PROMPTS

HISTORY = """### Chat History:
<chat_history>
USER: Read the text in this image aloud, please, at once
ASSISTANT: Here it is.
</chat_history>"""


def template(task: str, output: str) -> str:
    """A prompt as Open WebUI makes them."""
    return f"### Task:\n{task}\n\n### Guidelines:\n- Be short.\n\n### Output:\n{output}\n\n{HISTORY}"


TITLE = "Read the text in this image"


@pytest.mark.parametrize(
    ("task", "output", "expected"),
    [
        (
            "Generate a concise, 3-5 word title.",
            'JSON format: { "title": "your concise title here" }',
            {"title": TITLE},
        ),
        ("Generate 1-3 broad tags.", 'JSON format: { "tags": ["tag1", "tag2"] }', {"tags": ["General"]}),
        ("Suggest 3-5 follow-up questions.", 'JSON format: { "follow_ups": ["Question 1?"] }', {"follow_ups": []}),
        ("Decide on search queries.", 'Respond with { "queries": ["query1"] }', {"queries": []}),
        ("You are an autocompletion system.", 'Reply { "text": "" }', {"text": ""}),
    ],
)
def test_front_end_templates_get_requested_json(task: str, output: str, expected: object) -> None:
    answer = prompt_shortcuts.answer(RunSpec(request=template(task, output)))
    assert answer is not None
    assert json.loads(answer) == expected


@pytest.mark.parametrize(
    "order",
    [
        "Provide a concise, 5-word-or-less title for the conversation, using title case. Only return the title itself.",
        "Please generate a four to five word title summarizing our conversation without any lead-in or punctuation.",
        "Based on the chat history, give this conversation a name. Keep it short.",
        "You need to summarize the user's conversation into a title of 10 words or less.",
    ],
)
def test_title_is_start_of_first_message(order: str) -> None:
    history = [Turn(role=ROLE_USER, text="what do you see in “it”?"), Turn(role=ROLE_ASSISTANT, text="A cat.")]
    assert prompt_shortcuts.answer(RunSpec(request=order, history=history)) == "What do you see in it"
    assert prompt_shortcuts.answer(RunSpec(request=f"{order}\n\nUser: hello there\nAI: hi")) == "Hello there"


def test_title_without_json_is_text() -> None:
    prompt = template("Generate a concise title with an emoji.", "Return ONLY the title text, nothing else.")
    assert prompt_shortcuts.answer(RunSpec(request=prompt)) == TITLE


@pytest.mark.parametrize(
    "request_",
    [
        "Draw a picture with the title “Our conversation”",
        "Give this picture a title",
        "### Task:\nTranslate this to French: hello",
        "Summarize the conversation in this recording",
        "What is the name of the chat app in this screenshot?",
        'Return { "title": "…" } for this article',
    ],
)
def test_user_requests_are_not_shortcuts(request_: str) -> None:
    assert prompt_shortcuts.answer(RunSpec(request=request_)) is None


def test_prompt_with_files_is_not_a_shortcut() -> None:
    spec = RunSpec(request=template("Generate a title.", '{ "title": "" }'))
    spec.inputs.append(NamedValue(name="file1", value=Value(text="x")))
    assert prompt_shortcuts.answer(spec) is None


@pytest.mark.parametrize("name", CHAT_PROMPTS)
@pytest.mark.timeout(30)
def test_long_texts_are_matched_in_bounded_time(name: str) -> None:
    answer = prompt_shortcuts.answer(RunSpec(request=f"{CHAT_PROMPTS[name]}x"))
    assert answer == ("New chat" if name == "beginnings" else None)
