"""Plans built from graphs of intents."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from services.planner.embedded.graph_steps import nodes
from services.planner.embedded.learned.beam_search import Graph
from services.planner.embedded.learned.candidates import Hints
from services.planner.embedded.learned.features import tokens
from services.planner.embedded.learned.reading import read
from services.planner.embedded.learned.weights import weights
from services.planner.embedded.merging import lacks_more
from services.planner.embedded.plan_notes import finished
from services.planner.embedded.planning import Embedded
from services.planner.embedded.rules import Rules
from services.planner.plan import Draft, NoteKind
from services.planner.plan_check import find_faults
from services.planner.request import Request
from services.planner.task_spec import Catalogue, Modality, Port, Spec
from tests.support.plans import LITE, STANDARD, embedded_plan, notation, plan_request

LEARNED = weights()
RULES = Rules(STANDARD)


def sense_index(intent: str) -> int:
    return LEARNED.intents.index(intent)


def build_draft(
    request: Request, *links: tuple[str, str], unlinked: Iterable[str] = (), catalogue: Catalogue = STANDARD
) -> Draft:
    """The draft of a request whose graph is given by its links."""
    rules = RULES.read(request, catalogue)
    numbered = frozenset((sense_index(producer), sense_index(consumer)) for producer, consumer in links)
    intents = frozenset((*(end for link in numbered for end in link), *map(sense_index, unlinked)))
    reading = replace(read(tokens(rules.wording), Hints(), LEARNED), graph=Graph(intents, numbered))
    plan = rules.plan.empty()
    plan.add_nodes(nodes(reading, rules, LEARNED.intents))
    return finished(plan, rules, confidence=1.0)


def rules_draft(request: Request) -> Draft:
    """The plan of the rules alone."""
    rules = RULES.read(request, STANDARD)
    return finished(rules.plan, rules, confidence=rules.confidence)


def test_links_follow_the_graph_and_not_the_order_of_the_text() -> None:
    request = plan_request("Summarize talk.wav, once it is transcribed", ["talk.wav"])
    draft = build_draft(request, ("automatic-speech-recognition", "summarization"))
    assert notation(draft.tasks) == ["automatic-speech-recognition(audio=file1)", "summarization(text=1.text)"]
    assert draft.intents == {1: "automatic-speech-recognition", 2: "summarization"}


def test_task_that_depends_on_an_unoffered_task_is_noted() -> None:
    request = plan_request("Transcribe talk.wav and translate it into German", ["talk.wav"])
    offered = {name: spec for name, spec in STANDARD.items() if name != "automatic-speech-recognition"}
    draft = build_draft(request, ("automatic-speech-recognition", "translation"), catalogue=offered)
    assert draft.tasks == ()
    assert any("automatic-speech-recognition" in note.text for note in draft.notes)


def test_unused_file_is_noted() -> None:
    request = plan_request("Describe the picture", ["cat.png", "talk.wav"])
    draft = build_draft(request, unlinked=["image-to-text"])
    assert notation(draft.tasks) == ["image-to-text(image=file1)"]
    assert [note.kind for note in draft.notes if "talk.wav" in note.text] == [NoteKind.TRIMMED]


def test_unused_file_that_the_request_names_needs_clarification() -> None:
    request = plan_request("Describe cat.png and transcribe talk.wav", ["cat.png", "talk.wav"])
    draft = build_draft(request, unlinked=["image-to-text"])
    assert [note.kind for note in draft.notes if "talk.wav" in note.text] == [NoteKind.CLARIFY]


def test_empty_graph_keeps_the_notes_of_the_rules() -> None:
    request = plan_request("Sing me to sleep")
    assert build_draft(request).notes == rules_draft(request).notes


def test_plan_with_more_clarifications_lacks_more() -> None:
    complete = rules_draft(plan_request("Summarize notes.txt", ["notes.txt"])).notes
    open_ended = rules_draft(plan_request("Summarize notes.txt and transcribe the recording", ["notes.txt"])).notes
    assert lacks_more(open_ended, complete)
    assert not lacks_more(complete, open_ended)
    assert not lacks_more(complete, complete)


@pytest.mark.parametrize("catalogue", [{}, LITE, STANDARD], ids=["empty", "lite", "standard"])
@pytest.mark.parametrize(
    "text", ["", " \n", "🎉👩‍👩‍👧", "翻译", "\u202e\x00", "the second one", '"', "日本" * 2_500, "a.png " * 800]
)
def test_any_text_yields_a_valid_plan_or_a_note(text: str, catalogue: Catalogue) -> None:
    request = plan_request(text, [f"{number}.{ending}" for number in range(17) for ending in ("png", "wav", "csv")])
    draft = embedded_plan(request, catalogue)
    assert draft.tasks or draft.notes
    assert 0 <= draft.decision.confidence <= 1
    inputs = {named.name: named.value for named in request.inputs}
    assert not draft.tasks or find_faults(draft.tasks, catalogue, inputs) == []


def test_concurrent_plans_equal_sequential_ones() -> None:
    custom = Spec("frobnicate", "Frobnicates a widget", (), (Port("text", Modality.TEXT),))
    catalogues = LITE, {**LITE, "frobnicate": custom}
    text = "Frobnicate the widget", "Describe cat.png and read it aloud", "Transcribe talk.wav, then summarize it"
    jobs = [(plan_request(text, ["cat.png", "talk.wav"]), offered) for text in text for offered in catalogues] * 5
    embedded = Embedded(STANDARD)
    with ThreadPoolExecutor(8) as threads:
        concurrent = list(threads.map(lambda job: embedded.plan(*job), jobs))
    assert concurrent == [embedded_plan(*job) for job in jobs]
