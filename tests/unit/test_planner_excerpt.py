"""Long requests are shortened to be planned, and nothing of them is lost."""

from services.planner.excerpt import QUOTED_CHARACTERS, Excerpt, excerpt
from services.planner.plan import Decision, Draft, Many, Note, NoteKind, Task, Text
from tests.support.plans import plan_request

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
    return excerpt(plan_request(text), CHARACTERS)


def test_short_request_stays_as_it_is() -> None:
    request = plan_request("Summarize it.")
    assert excerpt(request, CHARACTERS).request is request


def test_long_request_loses_its_middle() -> None:
    shortened_request = shortened(f"Summarize: {CONTENT}. Then translate it.")
    assert len(shortened_request.request.text) <= CHARACTERS + 200
    assert shortened_request.request.text.startswith("Summarize: word0 ")
    assert shortened_request.request.text.endswith(". Then translate it.")


def test_left_out_middle_is_restored_in_arguments() -> None:
    shortened_request = shortened(f"Summarize: {CONTENT}")
    restore = shortened_request.restore(draft_of(shortened_request.request.text.removeprefix("Summarize: ")))
    assert texts_of(restore) == [CONTENT]


def test_left_out_middle_is_ellipsis_in_source_and_notes() -> None:
    shortened_request = shortened(CONTENT)
    restore = shortened_request.restore(draft_of(shortened_request.request.text, note=shortened_request.request.text))
    assert len(restore.tasks[0].source) <= CHARACTERS + 200
    assert "…" in restore.tasks[0].source
    assert "…" in restore.notes[0].text
    assert shortened_request.middle not in restore.notes[0].span


def test_only_quotations_are_shortened_if_that_is_enough() -> None:
    shortened_request = shortened(f'Compare "{CONTENT}" and “{CONTENT}” please')
    assert not shortened_request.middle
    assert shortened_request.request.text.count("word0 ") == 2
    assert shortened_request.request.text.endswith("” please")


def test_each_quotation_is_restored() -> None:
    other = CONTENT.upper()
    shortened_request = shortened(f'Compare "{CONTENT}" and “{other}”')
    short = shortened_request.request.text.removeprefix('Compare "').removesuffix("”").split('" and “')
    assert max(map(len, short)) == QUOTED_CHARACTERS + 1
    assert texts_of(shortened_request.restore(draft_of(*short))) == [CONTENT, other]


def test_quotation_within_left_out_middle_is_restored() -> None:
    text = f'Summarize: {CONTENT} "{CONTENT}" {CONTENT}'
    shortened_request = shortened(text)
    assert texts_of(shortened_request.restore(draft_of(shortened_request.request.text))) == [text]


def test_middle_that_no_task_takes_is_not_explained_and_noted() -> None:
    shortened_request = shortened(CONTENT)
    draft = draft_of("another text")
    assert not shortened_request.covers(draft)
    assert "were not searched for what to do" in shortened_request.restore(draft).notes[-1].text


def test_placeholder_that_request_contains_is_not_used() -> None:
    shortened_request = shortened(f"Summarize: \ue100 {CONTENT}")
    assert shortened_request.middle == "\ue101"


def test_request_of_all_placeholders_stays_as_it_is() -> None:
    text = "".join(map(chr, range(0xE100, 0xF000)))
    assert shortened(text).request.text == text
