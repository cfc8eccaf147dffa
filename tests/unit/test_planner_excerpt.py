"""Long requests are shortened to be planned, and nothing of them is lost."""

from services.planner.excerpt import QUOTED_CHARACTERS, Excerpt, excerpt
from services.planner.plan import Decision, Draft, Many, Note, NoteKind, Task, Text
from tests.support.plans import asked

CHARACTERS = 3_000
CONTENT = " ".join(f"word{number}" for number in range(20_000))


def draft_of(*texts: str, note: str = "") -> Draft:
    task = Task(1, "summarization", {"text": Many(tuple(map(Text, texts)))}, source=" ".join(texts))
    return Draft((task,), (Note(NoteKind.UNMAPPED, note, note),) if note else (), Decision("embedded", ""))


def texts_of(draft: Draft) -> list[str]:
    argument = draft.tasks[0].arguments["text"]
    assert isinstance(argument, Many)
    return [item.text for item in argument.items if isinstance(item, Text)]


def shortened(text: str) -> Excerpt:
    return excerpt(asked(text), CHARACTERS)


def test_short_request_stays_as_it_is() -> None:
    request = asked("Summarize it.")
    assert excerpt(request, CHARACTERS).request is request


def test_long_request_loses_its_middle() -> None:
    found = shortened(f"Summarize: {CONTENT}. Then translate it.")
    assert len(found.request.text) <= CHARACTERS + 200
    assert found.request.text.startswith("Summarize: word0 ")
    assert found.request.text.endswith(". Then translate it.")


def test_left_out_middle_is_restored_in_arguments() -> None:
    found = shortened(f"Summarize: {CONTENT}")
    restore = found.restore(draft_of(found.request.text.removeprefix("Summarize: ")))
    assert texts_of(restore) == [CONTENT]


def test_left_out_middle_is_ellipsis_in_source_and_notes() -> None:
    found = shortened(CONTENT)
    restore = found.restore(draft_of(found.request.text, note=found.request.text))
    assert len(restore.tasks[0].source) <= CHARACTERS + 200
    assert "…" in restore.tasks[0].source
    assert "…" in restore.notes[0].text
    assert found.middle not in restore.notes[0].span


def test_only_quotations_are_shortened_if_that_is_enough() -> None:
    found = shortened(f'Compare "{CONTENT}" and “{CONTENT}” please')
    assert not found.middle
    assert found.request.text.count("word0 ") == 2
    assert found.request.text.endswith("” please")


def test_each_quotation_is_restored() -> None:
    other = CONTENT.upper()
    found = shortened(f'Compare "{CONTENT}" and “{other}”')
    short = found.request.text.removeprefix('Compare "').removesuffix("”").split('" and “')
    assert max(map(len, short)) == QUOTED_CHARACTERS + 1
    assert texts_of(found.restore(draft_of(*short))) == [CONTENT, other]


def test_quotation_within_left_out_middle_is_restored() -> None:
    text = f'Summarize: {CONTENT} "{CONTENT}" {CONTENT}'
    found = shortened(text)
    assert texts_of(found.restore(draft_of(found.request.text))) == [text]


def test_middle_that_no_task_takes_is_not_explained_and_noted() -> None:
    found = shortened(CONTENT)
    draft = draft_of("another text")
    assert not found.covers(draft)
    assert "were not searched for what to do" in found.restore(draft).notes[-1].text


def test_placeholder_that_request_contains_is_not_used() -> None:
    found = shortened(f"Summarize: \ue100 {CONTENT}")
    assert found.middle == "\ue101"


def test_request_of_all_placeholders_stays_as_it_is() -> None:
    text = "".join(map(chr, range(0xE100, 0xF000)))
    assert shortened(text).request.text == text
