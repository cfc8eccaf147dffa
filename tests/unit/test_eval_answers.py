"""Checks of answers and verdicts on answers written by hand."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image, ImageDraw

from tests.eval.answers.cases import Case, Expectation, Request
from tests.eval.answers.checks import Answer, Output, failures
from tests.eval.answers.judge import Verdict, is_declined, judge, without_repetition, without_steps

STEPS = "\n\n**How it was done**\n\n1. document-question-answering: rapidocr (lite), 15.29 s\n"


def case(request: str = "how much?", expectation: str = "answer", *, repeat: bool = False, **check: Any) -> Case:
    return Case(
        "d-1", "plain", "none", "en", Request(request), "…", Expectation(expectation), check, (), may_repeat=repeat
    )


def verdict(of: Case, answer: str, state: str = "completed") -> str:
    return judge(of, state, Answer(answer)).verdict


def failed(answer: str = "", *outputs: Output, inputs: Path = Path(), **check: Any) -> bool:
    return bool(failures(check, Answer(answer, outputs, inputs)))


def picture(name: str, drawn: Image.Image) -> Output:
    file = io.BytesIO()
    drawn.save(file, name.rpartition(".")[2].replace("jpg", "jpeg"))
    return Output(name, file.getvalue())


def recording(name: str = "speech.wav", *, seconds: float = 2.0, level: float = 0.0) -> Output:
    file = io.BytesIO()
    samples = np.full(int(8000 * seconds), level, dtype=np.float32)
    soundfile.write(file, samples, 8000, format=name.rpartition(".")[2].upper())
    return Output(name, file.getvalue())


# ---------------------------------------------------------------- verdicts


def test_answer_that_passes_its_check_is_right() -> None:
    assert verdict(case(all=["15.29"]), "How much? **15.29**") is Verdict.RIGHT


def test_other_answer_of_a_completed_run_is_wrong_but_sure() -> None:
    assert verdict(case(all=["15.29"]), "How much? **13.90**") is Verdict.WRONG


def test_claim_that_the_document_does_not_say_is_wrong_if_it_does() -> None:
    assert verdict(case(all=["15.29"]), "How much? **The document does not say.**") is Verdict.WRONG


@pytest.mark.parametrize(
    "answer",
    [
        "I found no answer to “how much” in receipt.jpg.",
        "**What could not be done**\n\n- translation is not offered here.",
        "Which of these files do you mean?",
        "Dazu habe ich keine Antwort gefunden.",
        "영수증에서 답을 찾지 못했습니다.",
        "无法回答这个问题。",
    ],
)
def test_statement_that_nothing_was_found_is_declined(answer: str) -> None:
    assert verdict(case(all=["15.29"]), answer) is Verdict.DECLINED


def test_failed_run_is_declined() -> None:
    assert verdict(case(all=["15.29"]), "", state="failed") is Verdict.DECLINED


def test_right_answer_of_an_incomplete_run_is_declined() -> None:
    assert verdict(case(all=["15.29"]), "**15.29**", state="incomplete") is Verdict.DECLINED


def test_wrong_answer_marked_as_a_guess_is_declined() -> None:
    answer = "How much? **13.90** This is a guess: it is only 12 % sure."
    assert verdict(case(all=["15.29"]), answer) is Verdict.DECLINED


def test_wrong_guess_is_declined_where_absence_is_expected() -> None:
    answer = "**two** This is a guess: it is only 25% sure."
    assert verdict(case(expectation="absent"), answer) is Verdict.DECLINED


def test_doubtful_text_does_not_excuse_a_missing_file() -> None:
    answer = "Rough transcript: “milk and red”. Many words of it may be wrong."
    assert verdict(case(file={"kind": "audio", "format": "OGG"}), answer) is Verdict.WRONG


def test_false_claim_of_absence_is_wrong_in_an_incomplete_run() -> None:
    answer = "**The document does not say.** Not everything could be done; see the end."
    assert verdict(case(all=["15.29"]), answer, state="incomplete") is Verdict.WRONG


def test_figures_of_the_list_of_steps_are_no_answer() -> None:
    assert verdict(case(all=["15.29"]), f"How much? **13.90**{STEPS}") is Verdict.WRONG


def test_failures_after_the_list_of_steps_count() -> None:
    answer = f"**13.90**{STEPS}\n**What could not be done**\n\n- That could not be done."
    assert verdict(case(all=["15.29"]), answer) is Verdict.DECLINED


def test_text_of_a_document_is_no_refusal() -> None:
    assert not is_declined("sign.png says:\n\n> You cannot park here\n> Dogs are not allowed")


def test_quoted_transcript_is_no_refusal() -> None:
    assert not is_declined("Summary of a.txt: “You cannot park here.”")


def test_impossible_request_is_right_if_declined() -> None:
    assert verdict(case(expectation="decline"), "Bookings are not possible here.") is Verdict.RIGHT


def test_impossible_request_is_wrong_if_something_else_is_answered() -> None:
    assert verdict(case(expectation="decline"), "**The document does not say.**") is Verdict.WRONG


def test_answer_to_an_impossible_request_is_right_if_it_passes_the_check() -> None:
    assert verdict(case(expectation="decline", all=["apple"]), "A red apple.") is Verdict.RIGHT


@pytest.mark.parametrize("answer", ["The document does not say.", "No text was found in hills.png.", "I cannot tell."])
def test_absence_is_right_where_it_is_expected(answer: str) -> None:
    assert verdict(case(expectation="absent"), answer) is Verdict.RIGHT


def test_invented_answer_is_wrong_where_absence_is_expected() -> None:
    assert verdict(case(expectation="absent"), "**020 7946 0431**") is Verdict.WRONG


def test_partial_answer_is_right_if_the_rest_is_declined() -> None:
    of, answer = case(expectation="partial", all=["no swimming"]), "> No swimming\n\nTranslation is not offered."
    assert verdict(of, answer, state="incomplete") is Verdict.RIGHT


def test_partial_answer_is_wrong_if_the_rest_is_concealed() -> None:
    assert verdict(case(expectation="partial", all=["no swimming"]), "> No swimming") is Verdict.WRONG


def test_partial_request_that_is_refused_as_a_whole_is_declined() -> None:
    of = case(expectation="partial", all=["no swimming"])
    assert verdict(of, "This could not be done.", state="failed") is Verdict.DECLINED


def test_repeated_question_is_no_answer() -> None:
    of = case("is this review good or bad?", all=["bad"])
    assert verdict(of, "Is this review good or bad: **neutral**.") is Verdict.WRONG


def test_repetition_counts_if_the_request_contains_the_text() -> None:
    request = "The surgery is at 45 Ferry Road. Where is it?"
    assert verdict(case(request, repeat=True, all=["45 Ferry Road"]), "**45 Ferry Road**") is Verdict.RIGHT


def test_judgement_states_what_failed() -> None:
    judgement = judge(case(all=["15.29"]), "completed", Answer("13.90"))
    assert judgement.failures == ("all: 15.29 is missing",)


def test_two_successive_words_are_no_repetition() -> None:
    assert without_repetition("the total is 5", "what is the total") == "the total is 5"


def test_text_without_steps_is_unchanged() -> None:
    assert without_steps("**15.29**\n") == "**15.29**\n"


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        ("It is **15.29**.", {"all": ["15.29"]}),
        ("> Deep\n> water", {"all": ["DEEP WATER"]}),
        ("two faces", {"all": [["2", "two"]]}),
        ("12월 3일 화요일", {"all": ["12월 3일"]}),
        ("19 May", {"none": ["9 May"]}),
        ("1,742 words", {"number": [1742, 0]}),
        ("119 words", {"number": [118, 1]}),
        ("Page 2.", {"matches": r"\bpage (2|two)\b"}),
        ("please bring dollars on friday", {"words": {"of": "Bring 300 dollars on Friday.", "share": 0.8}}),
        ("short", {"max_characters": 5}),
    ],
)
def test_text_passes(answer: str, check: Mapping[str, Any]) -> None:
    assert not failed(answer, **check)


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        ("115.29", {"all": ["15.29"]}),
        ("15.295", {"all": ["15.29"]}),
        ("Annabel", {"all": ["Anna"]}),
        ("4.50 and 4", {"none": ["4"]}),
        ("118.5", {"number": [118, 0]}),
        ("nothing", {"words": {"of": "bring dollars", "share": 0.5}}),
        ("longer", {"max_characters": 5}),
    ],
)
def test_text_fails(answer: str, check: Mapping[str, Any]) -> None:
    assert failed(answer, **check)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "properties", [{"size": [60, 40]}, {"format": "PNG"}, {"pixels": [[0.1, 0.5, "red"], [0.9, 0.5, "blue"]]}]
)
def test_picture_with_the_properties_passes(properties: Mapping[str, Any]) -> None:
    drawn = Image.new("RGB", (60, 40), "red")
    drawn.paste("blue", (30, 0, 60, 40))
    assert not failed("", picture("a.png", drawn), file={"kind": "image", **properties})


@pytest.mark.parametrize(
    "properties",
    [{"size": [40, 60]}, {"square": True}, {"format": "JPEG"}, {"grey": True}, {"pixels": [[0.1, 0.5, "blue"]]}],
)
def test_picture_without_a_property_fails(properties: Mapping[str, Any]) -> None:
    drawn = Image.new("RGB", (60, 40), "red")
    assert failed("", picture("a.png", drawn), file={"kind": "image", **properties})


def test_colour_picture_without_colours_is_grey() -> None:
    assert not failed("", picture("a.jpg", Image.new("RGB", (8, 8), "#777777")), file={"kind": "image", "grey": True})


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_mask_may_be_white_or_opaque_at_the_subject(mode: str) -> None:
    drawn = Image.new(mode, (100, 100), 0)
    ImageDraw.Draw(drawn).rectangle((30, 30, 70, 70), fill="white" if mode == "L" else (200, 0, 0, 255))
    mask = {"inside": [0.5, 0.5], "outside": [0.1, 0.1]}
    assert not failed("", picture("mask.png", drawn), file={"kind": "image", "mask": mask})


def test_brightness_is_compared_with_the_input(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 100).save(tmp_path / "in.png")
    output = picture("out.png", Image.new("L", (8, 8), 150))
    assert not failed("", output, inputs=tmp_path, file={"kind": "image", "brighter_than": "in.png"})
    assert failed("", output, inputs=tmp_path, file={"kind": "image", "darker_than": "in.png"})


@pytest.mark.parametrize("properties", [{"seconds": [1, 3]}, {"format": "WAV"}, {"quiet_start": 0.01}])
def test_recording_with_the_properties_passes(properties: Mapping[str, Any]) -> None:
    assert not failed("", recording(), file={"kind": "audio", **properties})


@pytest.mark.parametrize("properties", [{"seconds": [3, 9]}, {"format": "OGG"}, {"quiet_start": 0.01}])
def test_recording_without_a_property_fails(properties: Mapping[str, Any]) -> None:
    assert failed("", recording(level=0.5), file={"kind": "audio", **properties})


def test_one_matching_file_is_enough_for_file() -> None:
    assert not failed("", Output("notes.txt", b"text"), recording(), file={"kind": "audio"})


def test_each_file_must_match_for_each_file() -> None:
    assert failed("", Output("notes.txt", b"text"), recording(), each_file={"kind": "audio"})


def test_missing_output_file_fails() -> None:
    assert failed("saved as speech.mp3", file={"kind": "audio"})


def test_number_of_files_is_checked() -> None:
    assert failed("", recording(), files=[0, 0])
