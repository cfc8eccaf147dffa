"""Under the data policy local nothing is sent outside, as observed on the only network interface."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.network_namespace import ANYWHERE, OUTSIDE, behind
from tests.system.conftest import ROOT, environment

REMEDY = """no network of one's own can be made here: run the tests as root, or let any user make one
(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0); make test-deps has ip"""
SECONDS = 280.0

pytestmark = [pytest.mark.slow, pytest.mark.needs("ip"), pytest.mark.timeout(SECONDS + 20)]


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results, and the traffic observed outside: after start, under the policy local, and under the policy open."""
    home = tmp_path_factory.mktemp("walls")
    done = subprocess.run(
        behind("tests.support.network_namespace.outside", str(home)),
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "unshare failed" not in done.stderr, f"{done.stderr}{REMEDY}"
    assert "RuntimeError: ip " not in done.stderr, f"{done.stderr}{REMEDY}"
    log = home / "log"
    assert done.returncode == 0, done.stderr[-3000:] + (log.read_text()[-3000:] if log.exists() else "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_idle_services_send_nothing(observations: list[Any]) -> None:
    assert observations[0] == {"told": "ready", "seen": []}


def test_local_policy_sends_nothing(observations: list[Any]) -> None:
    assert observations[1]["seen"] == []


def test_local_policy_falls_back_to_the_embedded_planner(observations: list[Any]) -> None:
    planned = observations[1]["told"]["planned"]
    assert planned["state"] == "completed"
    assert "so happy" in planned["answer"]
    (note,) = planned["notes"]
    assert note["kind"] == "fell_back"
    assert "does not allow the external LLM outside" in note["text"]


@pytest.mark.parametrize("expert", ["remote", "served"])
def test_local_policy_fails_tasks_of_external_experts(observations: list[Any], expert: str) -> None:
    run = observations[1]["told"][expert]
    assert run["state"] == "failed"
    assert run["failure"]["reason"] == "POLICY"
    assert "offered only by external experts, and the data policy is local" in run["answer"]
    assert "add an internal expert" in run["failure"]["remedy"]


def test_local_policy_rejects_external_urls(observations: list[Any]) -> None:
    refused = observations[1]["told"]["url"]
    assert refused["status"] == 403
    assert refused["code"] == "POLICY"
    assert "upload the file" in refused["remedy"]


def test_policy_of_a_pipeline_applies_to_its_runs_and_batches(observations: list[Any]) -> None:
    told = observations[1]["told"]
    assert told["run"]["state"] == "completed"
    assert told["batch"]["state"] == "completed"
    assert told["batch"]["counts"]["completed"] == 2
    assert told["batch"]["pipeline"]["policy"] == "local"


def test_local_batch_is_planned_by_the_embedded_planner(observations: list[Any]) -> None:
    words = observations[1]["told"]["words"]
    assert words["state"] == "completed"
    assert words["counts"]["completed"] == 2


def test_local_batch_of_external_tasks_is_rejected(observations: list[Any]) -> None:
    refused = observations[1]["told"]["outside"]
    assert refused["status"] == 409
    assert refused["code"] == "POLICY"
    assert "add an internal expert" in refused["remedy"]


def test_local_pipeline_rejects_external_urls(observations: list[Any]) -> None:
    told = observations[1]["told"]
    assert told["link"]["status"] == 403
    assert told["link"]["code"] == "POLICY"
    assert told["links"]["counts"]["completed"] == 2
    assert told["links"]["counts"]["failed"] == 1


def test_local_policy_withholds_webhook_deliveries(observations: list[Any]) -> None:
    told = observations[1]["told"]["told"]
    assert {delivery["state"] for delivery in told} == {"withheld"}
    assert ["batch_id" in delivery for delivery in told].count(True) == 3
    assert ["run_id" in delivery for delivery in told].count(True) == 4
    assert {"hooks.test is an external host" in delivery["outcome"] for delivery in told} == {True}


def test_open_policy_sends_the_same_requests_outside(observations: list[Any]) -> None:
    seen = observations[2]["seen"]
    assert {f"connection to {OUTSIDE}:8000", f"connection to {ANYWHERE}:443", f"connection to {ANYWHERE}:80"} <= {*seen}
    assert {"name router.huggingface.co", "name a.test", "name hooks.test"} <= {*seen}
    assert "name mobile.events.data.microsoft.com" not in seen
    runs = {expert: observations[2]["told"][expert] for expert in ("planned", "remote", "served")}
    reasons = {expert: run.get("failure", {}).get("reason") for expert, run in runs.items()}
    assert reasons["planned"] is None
    assert None not in (reasons["remote"], reasons["served"]), "the listener answers nothing"
    assert "POLICY" not in reasons.values()
