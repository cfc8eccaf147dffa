"""What tasks are given: the words that describe, ask or order, without those that say what else is wanted."""

import pytest

from services.planner.embedded.cues import lexicon
from services.planner.embedded.directions import into
from services.planner.embedded.feeding import meant, taken
from services.planner.embedded.parameters import parameters
from services.planner.embedded.prompts import from_map, inserted, plain
from services.planner.embedded.questions import asked
from services.planner.embedded.streams import Stream
from services.planner.embedded.wording import read
from services.planner.plan import Modality, Reference
from tests.support.plans import STANDARD, planned, written
from tests.support.plans import asked as sent


@pytest.mark.parametrize(
    ("words", "described"),
    [
        ("Take the pose of the man in the photo and give me a knight in the same pose", ["a knight"]),
        ("Keep the depth of my room but make it a spaceship cabin", ["a spaceship cabin"]),
        ("edge map attached -> a neon owl", ["a neon owl"]),
        ("soft edges, then a marble bust", ["a marble bust"]),
        ("From this room's depth make a jungle hut and an igloo", ["a jungle hut", "an igloo"]),
        ("normal map attached", []),
    ],
)
def test_what_is_made_from_a_map_is_described_without_the_map(words: str, described: list[str]) -> None:
    wording = read(words, ())
    assert from_map(wording.text, wording.masked, lexicon()) == described


@pytest.mark.parametrize(
    ("words", "kind", "described"),
    [
        ("draw a fox in the snow and tell me what breed it is", Modality.IMAGE, ["a fox in the snow"]),
        ("I need an illustration: a robot that knits, please", Modality.IMAGE, ["a robot that knits"]),
        ("A picture of an elf and a picture of an orc", Modality.IMAGE, ["an elf", "an orc"]),
        (
            "give me three images: a red barn, a blue barn and a green barn",
            Modality.IMAGE,
            ["a red barn", "a blue barn", "a green barn"],
        ),
        ("a picture of a bridge and a clip of a ferry leaving", Modality.VIDEO, ["a ferry leaving"]),
        ("clip: neon city in the rain, drone view", Modality.VIDEO, ["neon city in the rain, drone view"]),
        ("20 seconds of lo-fi beats", Modality.AUDIO, ["lo-fi beats"]),
        ("make it", Modality.IMAGE, []),
    ],
)
def test_what_is_shown_or_heard_is_described_without_the_order(
    words: str, kind: Modality, described: list[str]
) -> None:
    wording = read(words, ())
    assert plain(wording.text, wording.masked, lexicon(), kind=kind) == described


@pytest.mark.parametrize(
    ("words", "described"),
    [
        ("fill the white part of the mask with grass", ["grass"]),
        ("Swap the sofa for a bathtub. Then describe the new picture.", ["a bathtub"]),
        ("put a tiger where the cat is, then animate it", ["a tiger"]),
    ],
)
def test_what_stands_in_the_masked_part_is_named(words: str, described: list[str]) -> None:
    wording = read(words, ())
    assert inserted(wording.text, wording.masked, lexicon()) == described


@pytest.mark.parametrize(
    ("words", "questions"),
    [
        ("Under which number was this bill filed?", ["Under which number was this bill filed?"]),
        ("the warranty is attached, does it cover water damage?", ["Does it cover water damage?"]),
        ("what is our top product, in Italian please", ["What is our top product"]),
        ("who is the best paid, who is the worst paid", ["Who is the best paid", "Who is the worst paid"]),
        ("how much was withheld, see the payslip", ["How much was withheld"]),
        ("total? due date?", ["Total?", "Due date?"]),
        ("could you read the letter?", []),
    ],
)
def test_a_question_keeps_its_words_and_nothing_else(words: str, questions: list[str]) -> None:
    wording = read(words, ())
    spec = STANDARD["document-question-answering"]
    assert asked(wording.text, wording.masked, lexicon(), spec) == questions


def test_a_question_that_another_task_is_for_is_left_to_it() -> None:
    words = "what breed is the dog and where is it looking"
    assert asked(words, words, lexicon(), STANDARD["visual-question-answering"]) == ["Where is it looking"]


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        ("what activity is it? in portuguese please", ["pt"]),
        ("i got this in polish, can you turn it into english?", ["en"]),
        ("i need the letter in three languages: czech, slovak, polish", ["cs", "sk", "pl"]),
        ("the summary in spanish and, separately, in portuguese", ["es", "pt"]),
        ("polish my text then translate it", []),
        ("not into spanish, catalan", ["ca"]),
    ],
)
def test_the_languages_wanted_are_found_wherever_they_are_named(words: str, tags: list[str]) -> None:
    assert into(words, 0, len(words)) == tags


def test_of_several_translations_the_one_that_is_named_is_meant() -> None:
    both = Reference(1, "text"), Reference(2, "text")
    stream = Stream(Modality.TEXT, both, producer="translation", languages=("th", "ms"))
    assert meant(stream, "read the malay one").arguments == both[1:]
    assert meant(stream, "read them").arguments == both


def test_two_texts_that_are_compared_go_into_two_ports() -> None:
    stream = Stream(Modality.TEXT, (Reference(1, "text"), Reference(2, "text")), producer="image-to-text", port="text")
    filled = taken(STANDARD["sentence-similarity"], [stream])
    assert {name: one.arguments for name, one in filled.items()} == {
        "text": (Reference(1, "text"),),
        "sentences": (Reference(2, "text"),),
    }


def test_a_picture_that_was_cut_out_for_its_mask_is_not_painted_into() -> None:
    made = [
        Stream(Modality.IMAGE, (Reference(1, port),), producer="image-segmentation", port=port)
        for port in ("image", "mask")
    ]
    assert taken(STANDARD["inpainting"], made) == {}


def test_the_language_to_translate_into_is_no_part_of_the_text() -> None:
    draft = planned(sent("translate good morning to English"), STANDARD)
    assert written(draft.tasks) == ["translation(text='good morning'; target_language=en)"]


def test_a_text_that_was_sent_is_rewritten_rather_than_the_order() -> None:
    draft = planned(sent("proofread mail_draft.txt", ["mail_draft.txt"]), STANDARD)
    assert written(draft.tasks) == ["text2text-generation(text=file1)"]


def test_what_is_done_next_is_no_part_of_an_order() -> None:
    draft = planned(sent("write a poem about moss, in Welsh please"), STANDARD)
    assert written(draft.tasks) == [
        "text-generation(text='write a poem about moss')",
        "translation(text=1.text; target_language=cy)",
    ]


@pytest.mark.parametrize(
    ("name", "words", "found"),
    [
        ("text-to-speech", "read it twice as fast in a deep voice", {"speed": 2.0, "voice": "deep"}),
        ("image-super-resolution", "make it four times as big", {"scale": 4.0}),
        ("image-super-resolution", "upscale x8", {"scale": 8.0}),
        ("object-detection", "only with at least 0.7 confidence", {"threshold": 0.7}),
        ("object-detection", "ignore anything under 60 percent", {"threshold": 0.6}),
        ("text-to-image", "a castle, 512 px wide, but no people", {"width": 512, "negative_prompt": "people"}),
        ("summarization", "between 30 and 60 words", {"min_length": 30, "max_length": 60}),
    ],
)
def test_knobs_are_turned_by_more_than_their_names(name: str, words: str, found: dict[str, object]) -> None:
    assert parameters(STANDARD[name], words) == found
