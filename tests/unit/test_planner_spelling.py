"""Correction of typos."""

import pytest

from services.planner.embedded.spelling import read_mended


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("sumarize it", "summarize it"),
        ("Summerise it", "Summarise it"),
        ("trasncribe it", "transcribe it"),
        ("what langauge is it", "what language is it"),
        ("summarized, transcribing, pictures, recordings", "summarized, transcribing, pictures, recordings"),
        ("waht is teh prcie", "what is the price"),
        ("hwo many", "how many"),
        ("the meny", "the menu"),
        ("whats on it", "what's on it"),
        ("a summarised recognising", "a summarised recognising"),
        ("who is Tolal or Prive", "who is Tolal or Prive"),
        ("rate the note, park, play and reedit it pls", "rate the note, park, play and reedit it pls"),
        ("a recorder and a sediment", "a recorder and a sediment"),
        ("how manny days untill it arives", "how many days until it arrives"),
        ("its realy anoying", "its really annoying"),
        ("the temprature of the ovn", "the temperature of the oven"),
        ("blur sumarize.png", "blur sumarize.png"),
        ("is 'sumarize' a word?", "is 'sumarize' a word?"),
        ("read this aloud: sumarize", "read this aloud: sumarize"),
        ("read this aloud\nsumarize", "read this aloud\nsumarize"),
    ],
)
def test_only_typos_in_the_instructions_are_corrected(text: str, corrected: str) -> None:
    assert read_mended(text, ()).text == corrected
