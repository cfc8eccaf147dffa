"""tests/eval/data/answers agrees with its README: complete, consistent, and its files can be made."""

import json
import re
from collections import Counter
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from gateway.client import AsyncHuggingGPT
from protos.hugginggpt.tasks import standard_tasks
from tests.eval.answers import report
from tests.eval.answers.__main__ import arguments, chosen_cases, exit_status
from tests.eval.answers.cases import DATA, LANGUAGES, BadCases, Case, CaseSet, Expectation, read
from tests.eval.answers.checks import KEYS, Answer
from tests.eval.answers.files import content, described
from tests.eval.answers.judge import Judgement, Verdict, judge
from tests.eval.answers.run import Outcome, run_case

CASES = {case_set: read(case_set) for case_set in CaseSet}
ALL = [case for cases in CASES.values() for case in cases]
OTHER_TASKS = {"conversation", "none"}
LITE_TASKS = {entry["task"] for entry in json.loads(Path("experts/lite/models.json").read_text(encoding="utf-8"))}
KINDS = {
    "typo", "polite", "several questions", "several files", "follow-up", "condition", "impossible", "wrong file",
    "not in the file", "no file",
}  # fmt: skip


def outcome(case: Case, verdict: Verdict = Verdict.RIGHT) -> Outcome:
    return Outcome(case, Judgement(verdict), "completed", "…", (), 1.0)


def test_there_are_at_least_150_cases() -> None:
    assert len(ALL) >= 150


def test_a_quarter_is_held_out() -> None:
    assert 0.25 <= sum(len(cases) for case_set, cases in CASES.items() if case_set.is_held_out) / len(ALL) < 0.35


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(case.id for case in ALL).items() if count > 1] == []


@pytest.mark.parametrize(("one", "other"), list(combinations(CaseSet, 2)))
def test_no_request_is_in_two_sets(one: CaseSet, other: CaseSet) -> None:
    first, second = ({(case.request, case.before) for case in CASES[case_set]} for case_set in (one, other))
    assert len(first & second) == 0, "the sets must be disjoint"


@pytest.mark.parametrize(("one", "other"), list(combinations(CaseSet, 2)))
def test_sets_share_no_files(one: CaseSet, other: CaseSet) -> None:
    first, second = ({name for case in CASES[case_set] for name in case.files} for case_set in (one, other))
    assert len(first & second) == 0, "the sets must be disjoint"


@pytest.mark.parametrize("case_set", CaseSet)
def test_each_set_has_every_task_of_lite(case_set: CaseSet) -> None:
    assert {case.task for case in CASES[case_set]} >= LITE_TASKS


@pytest.mark.parametrize("case_set", CaseSet)
def test_each_set_has_every_language(case_set: CaseSet) -> None:
    assert {case.language for case in CASES[case_set]} == set(LANGUAGES)


@pytest.mark.parametrize("case_set", CaseSet)
def test_each_set_has_every_kind(case_set: CaseSet) -> None:
    assert {case.kind for case in CASES[case_set]} >= KINDS


def test_tasks_are_known() -> None:
    assert {case.task for case in ALL} <= standard_tasks().keys() | OTHER_TASKS


def test_keys_of_checks_are_known() -> None:
    assert {key for case in ALL for key in case.check} <= KEYS


def test_patterns_are_valid() -> None:
    assert all(re.compile(case.check["matches"]) for case in ALL if "matches" in case.check)


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.expectation in (Expectation.ANSWER, Expectation.PARTIAL)], ids=lambda c: c.id
)
def test_case_with_an_answer_has_a_check(case: Case) -> None:
    assert case.check


@pytest.mark.parametrize("case", [case for case in ALL if not case.may_repeat], ids=lambda c: c.id)
def test_repeating_the_request_is_no_answer(case: Case) -> None:
    if case.task != "conversation" and case.expectation is Expectation.ANSWER:
        assert judge(case, "completed", Answer(case.request.text)).verdict is not Verdict.RIGHT


def test_every_file_is_described() -> None:
    assert {name for case in ALL for name in case.files} <= described().keys()


def test_every_described_file_is_used() -> None:
    assert described().keys() - {name for case in ALL for name in case.files} == set()


@pytest.mark.parametrize("name", sorted(name for name, one in described().items() if "speech" not in one))
def test_file_can_be_made(name: str) -> None:
    assert content(name, described()[name])


def test_recording_can_be_made() -> None:
    if not find_spec("espeakng_loader"):
        pytest.skip("the extra speech is not installed")
    assert content("memo.wav", described()["memo.wav"]).startswith(b"RIFF")


def test_committed_data_is_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 400_000


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "d-1"}', '{"request": 5}'])
def test_invalid_line_is_reported_with_its_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "development.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(BadCases, match="line 1"):
        read(CaseSet.DEVELOPMENT, tmp_path)


async def test_refused_request_is_declined(tmp_path: Path) -> None:
    async with AsyncHuggingGPT("http://127.0.0.1:9") as client:
        refused = await run_case(client, CASES[CaseSet.DEVELOPMENT][0], tmp_path)
    assert refused.verdict is Verdict.DECLINED


# ---------------------------------------------------------------- report


def figures() -> dict[str, Any]:
    development = [outcome(CASES[CaseSet.DEVELOPMENT][0]), outcome(CASES[CaseSet.DEVELOPMENT][1], Verdict.WRONG)]
    held_out = [outcome(CASES[CaseSet.HELD_OUT][0], Verdict.DECLINED)]
    return report.figures(
        {CaseSet.DEVELOPMENT: development, CaseSet.HELD_OUT: held_out, CaseSet.HELD_OUT_LATER: held_out}
    )


def test_report_counts_verdicts() -> None:
    assert figures()["development"]["wrong_but_sure"] == 1


def test_report_has_percentages() -> None:
    assert figures()["development"]["right_percent"] == 50.0


@pytest.mark.parametrize("held_out", ["held_out", "held_out_later"])
def test_report_has_only_totals_of_held_out_cases(held_out: str) -> None:
    assert figures()[held_out] == {
        "n": 1,
        "right": 0,
        "declined": 1,
        "wrong_but_sure": 0,
        "right_percent": 0.0,
        "declined_percent": 100.0,
        "wrong_but_sure_percent": 0.0,
    }


def test_single_held_out_case_cannot_be_chosen() -> None:
    with pytest.raises(BadCases, match="h-001"):
        chosen_cases(arguments(["--case", "h-001"]))


def test_one_set_can_be_chosen() -> None:
    assert chosen_cases(arguments(["--set", "held_out"])) == CASES[CaseSet.HELD_OUT]


def test_unknown_case_stops_the_evaluation() -> None:
    stopped = exit_status(arguments(["--case", "d-999"]))
    assert stopped
    assert "d-999" in stopped
