"""Text arguments of tasks: descriptions, questions and instructions, without the rest of the request."""

import pytest

from services.planner.embedded.parameters import parameters
from services.planner.embedded.patterns import lexicon
from services.planner.embedded.port_assignment import meant, taken
from services.planner.embedded.prompts import from_map, inserted, plain
from services.planner.embedded.questions import find_questions
from services.planner.embedded.streams import Stream
from services.planner.embedded.target_languages import target_languages
from services.planner.embedded.wording import read
from services.planner.plan import Reference
from services.planner.task_spec import Modality
from tests.support.plans import STANDARD, embedded_plan, notation, plan_request


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        ("Take the pose of the man in the photo and give me a knight in the same pose", ["a knight"]),
        ("Keep the depth of my room but make it a spaceship cabin", ["a spaceship cabin"]),
        ("edge map attached -> a neon owl", ["a neon owl"]),
        ("soft edges, then a marble bust", ["a marble bust"]),
        ("From this room's depth make a jungle hut and an igloo", ["a jungle hut", "an igloo"]),
        ("normal map attached", []),
    ],
)
def test_image_from_map_is_described_without_the_map(text: str, descriptions: list[str]) -> None:
    wording = read(text, ())
    assert from_map(wording.text, wording.masked, lexicon()) == descriptions


@pytest.mark.parametrize(
    ("text", "kind", "descriptions"),
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
def test_description_of_media_omits_the_instruction(text: str, kind: Modality, descriptions: list[str]) -> None:
    wording = read(text, ())
    assert plain(wording.text, wording.masked, lexicon(), kind=kind) == descriptions


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        ("fill the white part of the mask with grass", ["grass"]),
        ("Swap the sofa for a bathtub. Then describe the new picture.", ["a bathtub"]),
        ("put a tiger where the cat is, then animate it", ["a tiger"]),
    ],
)
def test_content_of_the_masked_part_is_found(text: str, descriptions: list[str]) -> None:
    wording = read(text, ())
    assert inserted(wording.text, wording.masked, lexicon()) == descriptions


@pytest.mark.parametrize(
    ("text", "questions"),
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
def test_questions_are_extracted_without_other_text(text: str, questions: list[str]) -> None:
    wording = read(text, ())
    spec = STANDARD["document-question-answering"]
    assert find_questions(wording.text, wording.masked, lexicon(), spec) == questions


def test_question_that_another_task_answers_is_omitted() -> None:
    text = "what breed is the dog and where is it looking"
    assert find_questions(text, text, lexicon(), STANDARD["visual-question-answering"]) == ["Where is it looking"]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("what activity is it? in portuguese please", ["pt"]),
        ("i got this in polish, can you turn it into english?", ["en"]),
        ("i need the letter in three languages: czech, slovak, polish", ["cs", "sk", "pl"]),
        ("the summary in spanish and, separately, in portuguese", ["es", "pt"]),
        ("polish my text then translate it", []),
        ("not into spanish, catalan", ["ca"]),
    ],
)
def test_target_languages_are_found_anywhere_in_the_text(text: str, tags: list[str]) -> None:
    assert target_languages(text, 0, len(text)) == tags


def test_named_language_selects_one_of_several_translations() -> None:
    translations = Reference(1, "text"), Reference(2, "text")
    stream = Stream(Modality.TEXT, translations, producer="translation", languages=("th", "ms"))
    assert meant(stream, "read the malay one").arguments == translations[1:]
    assert meant(stream, "read them").arguments == translations


def test_compared_texts_fill_two_ports() -> None:
    stream = Stream(Modality.TEXT, (Reference(1, "text"), Reference(2, "text")), producer="image-to-text", port="text")
    filled_ports = taken(STANDARD["sentence-similarity"], [stream])
    assert {name: port.arguments for name, port in filled_ports.items()} == {
        "text": (Reference(1, "text"),),
        "sentences": (Reference(2, "text"),),
    }


def test_outputs_of_segmentation_do_not_fill_the_ports_of_inpainting() -> None:
    streams = [
        Stream(Modality.IMAGE, (Reference(1, port),), producer="image-segmentation", port=port)
        for port in ("image", "mask")
    ]
    assert taken(STANDARD["inpainting"], streams) == {}


def test_text_to_translate_omits_the_target_language() -> None:
    draft = embedded_plan(plan_request("translate good morning to English"), STANDARD)
    assert notation(draft.tasks) == ["translation(text='good morning'; target_language=en)"]


def test_uploaded_text_is_rewritten_instead_of_the_instruction() -> None:
    draft = embedded_plan(plan_request("proofread mail_draft.txt", ["mail_draft.txt"]), STANDARD)
    assert notation(draft.tasks) == ["text2text-generation(text=file1)"]


def test_instruction_of_a_task_omits_the_next_step() -> None:
    draft = embedded_plan(plan_request("write a poem about moss, in Welsh please"), STANDARD)
    assert notation(draft.tasks) == [
        "text-generation(text='write a poem about moss')",
        "translation(text=1.text; target_language=cy)",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
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
def test_parameters_are_read_from_paraphrases(name: str, text: str, expected: dict[str, object]) -> None:
    assert parameters(STANDARD[name], text) == expected
