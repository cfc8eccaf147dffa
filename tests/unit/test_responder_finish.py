"""What an answer by another hand must not be silent about."""

from dataclasses import replace

import pytest

from services.responder.finish import BROKE_OFF, CUT, FINISHED, INTERRUPTED, continued, ending, whole
from services.responder.run_summary import Account, Remark, RemarkKind, State, Task, Trouble

READ = Task(1, "image-to-text", State.SUCCEEDED, outputs={"text": "Exit"})
FAILED = Task(2, "text-to-speech", State.FAILED, source="aloud", trouble=Trouble("no voice", "install one"))
SKIPPED = Task(3, "audio-to-audio", State.SKIPPED, needs=frozenset({2}), trouble=Trouble("it was skipped"))
CANCELLED = Task(4, "translation", State.CANCELLED)
UNUSED = Remark(RemarkKind.LEFT_OUT, "Not used: a.png.")


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("It says “Exit”. There is _no voice_!", []),
        ("It says Exit, in a piano voice.", ["no voice"]),
        ("It says Exit; text-to-speech failed.", ["no voice"]),
        ("Kein Ton: „no voice“.", []),
    ],
)
def test_only_the_reason_itself_shows_that_a_failure_was_told(said: str, missing: list[str]) -> None:
    more = ending(Account("", (READ, FAILED)), FINISHED, said)
    assert [words for words in ("no voice",) if words in more] == missing


def test_all_that_did_not_come_about_is_told() -> None:
    more = ending(Account("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Trouble("too late")), FINISHED, "Exit.")
    assert more == (
        "\n\nNot used: a.png.\n\n**What could not be done**\n\n"
        "- text-to-speech (“aloud”) failed: no voice. What would help: install one.\n"
        "- audio-to-audio was not started: it needs the result of text-to-speech (task 2).\n"
        "- translation was cancelled.\n"
        "- too late.\n"
    )
    assert ending(Account("", (READ, FAILED, SKIPPED, CANCELLED), (UNUSED,), Trouble("too late")), FINISHED, more) == ""


def test_what_was_told_is_not_told_again_after_a_break() -> None:
    assert ending(Account("", (READ,)), BROKE_OFF, "It says “exit”") == f"\n\n{BROKE_OFF} all results are told above.\n"
    assert "“Exit”" in ending(Account("", (READ,)), INTERRUPTED, "It")
    assert "“Exit”" not in ending(Account("", (READ,)), CUT, "It")
    talk = Account("Hi", remarks=(Remark(RemarkKind.CHAT, ""),))
    assert ending(talk, BROKE_OFF, "Hel") == f"\n\n{BROKE_OFF} ask again for the rest.\n"


@pytest.mark.parametrize("why", [FINISHED, CUT, BROKE_OFF, INTERRUPTED])
def test_an_ending_left_anywhere_past_its_beginning_goes_on(why: str) -> None:
    account = Account("", (READ, FAILED))
    text = "It" + ending(account, why, "It")
    for length in range(len(f"It\n\n{why or '**What could not be done**'}"), len(text) + 1):
        more = continued(replace(account, sent=text[:length]))
        assert more is not None
        assert text[:length] + more == text


def test_what_a_model_had_begun_the_house_does_not_take_for_its_own() -> None:
    assert continued(Account("", (READ,))) is None
    assert continued(Account("", (READ,), sent="The sign")) is None
    assert continued(Account("", (READ,), sent=f"The sign\n\n{CUT} Or not.")) is None
    assert continued(Account("", (READ,), sent=whole(Account("", (READ,))))) == ""
