"""Figures of compared models: agreement, scores, durations and cost."""

from gateway.comparison.result import agreements, figures, is_unanimous
from gateway.comparison.similarity import answer
from gateway.comparison.trials import ComparedModel, Trial

A, B = ComparedModel("a"), ComparedModel("b", "1")
FAILED = Trial(None, "it broke")


def trial(text: str, seconds: float = 1.0) -> Trial:
    return Trial(answer({"text": text}), seconds=seconds, cost=0.5, input_tokens=2, output_tokens=1)


ROWS = [[trial("x"), trial("x", 3)], [trial("one two"), trial("one three", 5)], [trial("z", 9), FAILED]]


def test_agreement_counts_files_answered_by_both() -> None:
    ((pair, found),) = agreements(ROWS, [A, B]).items()
    assert pair == (A, B)
    assert found.files == 2
    assert found.same == 1
    assert found.share == 0.5
    assert found.similarity == 0.75


def test_failure_scores_zero_and_unlabelled_files_do_not_count() -> None:
    labels = [None, "one two", "z"]
    first, second = (figures(ROWS, labels, index) for index in (0, 1))
    assert first.score.files == 2
    assert first.score.same == 2
    assert first.score.similarity == 1
    assert second.score.files == 2
    assert second.score.same == 0
    assert second.score.similarity == 0.25


def test_durations_are_of_answers_and_costs_are_summed() -> None:
    first, second = (figures(ROWS, [None] * 3, index) for index in (0, 1))
    assert first.answered == 3
    assert first.failed == 0
    assert first.median_seconds == 1
    assert second.answered == 2
    assert second.failed == 1
    assert second.median_seconds == 4
    assert first.cost == 1.5
    assert first.input_tokens == 6
    assert first.output_tokens == 3
    assert figures(ROWS, [None] * 3, 0).score.similarity is None


def test_file_is_unanimous_if_all_answers_are_the_same() -> None:
    assert [is_unanimous(row) for row in ROWS] == [True, False, None]
    assert is_unanimous([trial("x"), trial("x"), trial("y")]) is False
