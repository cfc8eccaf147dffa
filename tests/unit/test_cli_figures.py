"""What trials come to."""

from gateway.cli.comparison.figures import agreed, agreements, figures
from gateway.cli.comparison.similarity import answer
from gateway.cli.comparison.trials import Contestant, Trial

A, B = Contestant("a"), Contestant("b", "1")
FAILED = Trial(None, "it broke")


def said(text: str, seconds: float = 1.0) -> Trial:
    return Trial(answer({"text": text}), seconds=seconds, cost=0.5, input_tokens=2, output_tokens=1)


ROWS = [[said("x"), said("x", 3)], [said("one two"), said("one three", 5)], [said("z", 9), FAILED]]


def test_models_agree_over_the_files_that_both_answered() -> None:
    ((pair, found),) = agreements(ROWS, [A, B]).items()
    assert pair == (A, B)
    assert (found.files, found.same, found.share, found.likeness) == (2, 1, 0.5, 0.75)


def test_a_failure_is_as_wrong_as_can_be_and_files_without_a_label_do_not_count() -> None:
    labels = [None, "one two", "z"]
    first, second = (figures(ROWS, labels, place) for place in (0, 1))
    assert (first.score.files, first.score.same, first.score.likeness) == (2, 2, 1)
    assert (second.score.files, second.score.same, second.score.likeness) == (2, 0, 0.25)


def test_times_are_of_answers_and_costs_are_summed() -> None:
    first, second = (figures(ROWS, [None] * 3, place) for place in (0, 1))
    assert (first.answered, first.failed, first.median_seconds) == (3, 0, 1)
    assert (second.answered, second.failed, second.median_seconds) == (2, 1, 4)
    assert (first.cost, first.input_tokens, first.output_tokens) == (1.5, 6, 3)
    assert figures(ROWS, [None] * 3, 0).score.likeness is None


def test_a_file_is_agreed_on_if_all_say_the_same() -> None:
    assert [agreed(row) for row in ROWS] == [True, False, None]
    assert agreed([said("x"), said("x"), said("y")]) is False
