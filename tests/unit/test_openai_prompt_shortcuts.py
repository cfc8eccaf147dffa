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
def test_templates_of_front_ends_get_json_in_the_form_they_name(task: str, output: str, expected: object) -> None:
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
def test_titles_are_the_first_words(order: str) -> None:
    history = [Turn(role=ROLE_USER, text="what do you see in “it”?"), Turn(role=ROLE_ASSISTANT, text="A cat.")]
    assert prompt_shortcuts.answer(RunSpec(request=order, history=history)) == "What do you see in it"
    assert prompt_shortcuts.answer(RunSpec(request=f"{order}\n\nUser: hello there\nAI: hi")) == "Hello there"


def test_plain_titles_are_plain() -> None:
    asked = template("Generate a concise title with an emoji.", "Return ONLY the title text, nothing else.")
    assert prompt_shortcuts.answer(RunSpec(request=asked)) == TITLE


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
def test_what_users_want_is_planned(request_: str) -> None:
    assert prompt_shortcuts.answer(RunSpec(request=request_)) is None


def test_who_sends_files_wants_more_than_a_title() -> None:
    spec = RunSpec(request=template("Generate a title.", '{ "title": "" }'))
    spec.inputs.append(NamedValue(name="file1", value=Value(text="x")))
    assert prompt_shortcuts.answer(spec) is None


@pytest.mark.parametrize("name", CHAT_PROMPTS)
@pytest.mark.timeout(30)
def test_text_that_is_slow_to_match_is_a_prompt_of_a_front_end_only_if_it_begins_like_one(name: str) -> None:
    answer = prompt_shortcuts.answer(RunSpec(request=f"{CHAT_PROMPTS[name]}x"))
    assert answer == ("New chat" if name == "beginnings" else None)
