"""From graphs of senses to tasks, whatever was read and whoever asks at the same time."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from services.planner.embedded.building import Builder, lacks_more, with_remarks
from services.planner.embedded.learned.parsing import Graph
from services.planner.embedded.learned.reading import read
from services.planner.embedded.learned.stages import Hints
from services.planner.embedded.learned.weights import weights
from services.planner.embedded.learned.words import tokens
from services.planner.embedded.planning import Embedded
from services.planner.embedded.rules import Rules
from services.planner.plan import Catalogue, Draft, Modality, NoteKind, Port, Spec
from services.planner.plan_check import complaints
from services.planner.request import Request
from tests.support.plans import LITE, STANDARD, asked, planned, written

LEARNED = weights()
RULES = Rules(STANDARD)


def place(sense: str) -> int:
    return LEARNED.senses.index(sense)


def built(
    request: Request, *links: tuple[str, str], alone: Iterable[str] = (), catalogue: Catalogue = STANDARD
) -> Draft:
    """What becomes of a request that was read as this graph."""
    drafted = RULES.draft(request, catalogue)
    found = tokens(drafted.wording)
    numbered = frozenset((place(producer), place(consumer)) for producer, consumer in links)
    senses = frozenset((*(end for link in numbered for end in link), *map(place, alone)))
    reading = replace(read(found, Hints(), LEARNED), graph=Graph(senses, numbered))
    made = Builder(drafted, RULES.weaver(drafted, catalogue), LEARNED.senses).build(
        reading, [token.start for token in found]
    )
    return with_remarks(drafted, made, 1.0)


def test_what_feeds_what_is_as_it_was_read_and_not_as_the_words_go() -> None:
    request = asked("Summarize talk.wav, once it is transcribed", ["talk.wav"])
    draft = built(request, ("automatic-speech-recognition", "summarization"))
    assert written(draft.tasks) == ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"]
    assert draft.senses == {1: "automatic-speech-recognition", 2: "summarization"}


def test_what_depends_on_a_task_that_nobody_does_is_said_to_be_lost() -> None:
    request = asked("Transcribe talk.wav and translate it into German", ["talk.wav"])
    offered = {name: spec for name, spec in STANDARD.items() if name != "automatic-speech-recognition"}
    draft = built(request, ("automatic-speech-recognition", "translation"), catalogue=offered)
    assert draft.tasks == ()
    assert any("automatic-speech-recognition" in note.text for note in draft.notes)


def test_a_file_that_no_task_is_given_is_named() -> None:
    request = asked("Describe the picture", ["cat.png", "talk.wav"])
    draft = built(request, alone=["image-to-text"])
    assert written(draft.tasks) == ["image-to-text(image=file1)"]
    assert [note.kind for note in draft.notes if "talk.wav" in note.text] == [NoteKind.TRIMMED]


def test_a_graph_without_tasks_leaves_what_rules_had_to_say() -> None:
    request = asked("Sing me to sleep")
    assert built(request).notes == RULES.draft(request, STANDARD).draft.notes


def test_a_build_that_asks_back_for_more_than_rules_do_lacks_more() -> None:
    whole = RULES.draft(asked("Summarize notes.txt", ["notes.txt"]), STANDARD).draft
    open_ended = RULES.draft(asked("Summarize notes.txt and transcribe the recording", ["notes.txt"]), STANDARD).draft
    assert lacks_more(open_ended, whole)
    assert not lacks_more(whole, open_ended)
    assert not lacks_more(whole, whole)


@pytest.mark.parametrize("catalogue", [{}, LITE, STANDARD], ids=["nothing", "a few", "all"])
@pytest.mark.parametrize(
    "words", ["", " \n", "🎉👩‍👩‍👧", "翻译", "\u202e\x00", "the second one", '"', "日本" * 2_500, "a.png " * 800]
)
def test_whatever_is_typed_the_plan_is_valid_or_says_why_there_is_none(words: str, catalogue: Catalogue) -> None:
    request = asked(words, [f"{number}.{ending}" for number in range(17) for ending in ("png", "wav", "csv")])
    draft = planned(request, catalogue)
    assert draft.tasks or draft.notes
    assert 0 <= draft.decision.confidence <= 1
    inputs = {named.name: named.value for named in request.inputs}
    assert not draft.tasks or complaints(draft.tasks, catalogue, inputs) == []


def test_plans_made_at_the_same_time_are_those_made_one_by_one() -> None:
    custom = Spec("frobnicate", "Frobnicates a widget", (), (Port("text", Modality.TEXT),))
    catalogues = LITE, {**LITE, "frobnicate": custom}
    words = "Frobnicate the widget", "Describe cat.png and read it aloud", "Transcribe talk.wav, then summarize it"
    jobs = [(asked(one, ["cat.png", "talk.wav"]), offered) for one in words for offered in catalogues] * 5
    embedded = Embedded(STANDARD)
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda job: embedded.plan(*job), jobs))
    assert together == [planned(*job) for job in jobs]
