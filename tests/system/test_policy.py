"""Under the data policy local nothing is sent outside, as observed on the only network interface."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.network_namespace import LISTENER_ADDRESS, RESOLVED_ADDRESS, namespace_command
from tests.system.conftest import ROOT, environment

REMEDY = """cannot create a network namespace: run the tests as root, or allow any user to create one
(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0);
`make test-deps` installs ip"""
SECONDS = 280.0

pytestmark = [pytest.mark.slow, pytest.mark.needs("ip"), pytest.mark.timeout(SECONDS + 20)]


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results, and the traffic observed outside: after start, under the policy local, and under the policy open."""
    home = tmp_path_factory.mktemp("home")
    process = subprocess.run(
        namespace_command("tests.support.network_namespace.outer_namespace", str(home)),
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "unshare failed" not in process.stderr, f"{process.stderr}{REMEDY}"
    assert "RuntimeError: ip " not in process.stderr, f"{process.stderr}{REMEDY}"
    log = home / "log"
    assert process.returncode == 0, process.stderr[-3000:] + (log.read_text()[-3000:] if log.exists() else "")
    return [json.loads(line) for line in process.stdout.splitlines()]


def test_idle_services_send_nothing(observations: list[Any]) -> None:
    assert observations[0] == {"message": "ready", "traffic": []}


def test_local_policy_sends_nothing(observations: list[Any]) -> None:
    assert observations[1]["traffic"] == []


def test_local_policy_falls_back_to_the_embedded_planner(observations: list[Any]) -> None:
    planned = observations[1]["message"]["planned"]
    assert planned["state"] == "completed"
    assert "so happy" in planned["answer"]
    (note,) = planned["notes"]
    assert note["kind"] == "fell_back"
    assert "does not allow the external LLM outside" in note["text"]


@pytest.mark.parametrize("expert", ["remote", "served"])
def test_local_policy_fails_tasks_of_external_experts(observations: list[Any], expert: str) -> None:
    run = observations[1]["message"][expert]
    assert run["state"] == "failed"
    assert run["failure"]["reason"] == "POLICY"
    assert "offered only by external experts, and the data policy is local" in run["answer"]
    assert "add an internal expert" in run["failure"]["remedy"]


def test_local_policy_rejects_external_urls(observations: list[Any]) -> None:
    problem = observations[1]["message"]["url"]
    assert problem["status"] == 403
    assert problem["code"] == "POLICY"
    assert "upload the file" in problem["remedy"]


def test_policy_of_a_pipeline_applies_to_its_runs_and_batches(observations: list[Any]) -> None:
    results = observations[1]["message"]
    assert results["run"]["state"] == "completed"
    assert results["batch"]["state"] == "completed"
    assert results["batch"]["counts"]["completed"] == 2
    assert results["batch"]["pipeline"]["policy"] == "local"


def test_local_batch_is_planned_by_the_embedded_planner(observations: list[Any]) -> None:
    batch = observations[1]["message"]["planned_batch"]
    assert batch["state"] == "completed"
    assert batch["counts"]["completed"] == 2


def test_local_batch_of_external_tasks_is_rejected(observations: list[Any]) -> None:
    problem = observations[1]["message"]["external_batch"]
    assert problem["status"] == 409
    assert problem["code"] == "POLICY"
    assert "add an internal expert" in problem["remedy"]


def test_local_pipeline_rejects_external_urls(observations: list[Any]) -> None:
    results = observations[1]["message"]
    assert results["url_run"]["status"] == 403
    assert results["url_run"]["code"] == "POLICY"
    assert results["url_batch"]["counts"]["completed"] == 2
    assert results["url_batch"]["counts"]["failed"] == 1


def test_local_policy_withholds_webhook_deliveries(observations: list[Any]) -> None:
    deliveries = observations[1]["message"]["deliveries"]
    assert {delivery["state"] for delivery in deliveries} == {"withheld"}
    assert ["batch_id" in delivery for delivery in deliveries].count(True) == 3
    assert ["run_id" in delivery for delivery in deliveries].count(True) == 4
    assert {"hooks.test is an external host" in delivery["outcome"] for delivery in deliveries} == {True}


def test_open_policy_sends_the_same_requests_outside(observations: list[Any]) -> None:
    traffic = observations[2]["traffic"]
    assert f"connection to {LISTENER_ADDRESS}:8000" in traffic
    assert f"connection to {RESOLVED_ADDRESS}:443" in traffic
    assert f"connection to {RESOLVED_ADDRESS}:80" in traffic
    assert "name router.huggingface.co" in traffic
    assert "name a.test" in traffic
    assert "name hooks.test" in traffic
    assert "name mobile.events.data.microsoft.com" not in traffic
    runs = {expert: observations[2]["message"][expert] for expert in ("planned", "remote", "served")}
    reasons = {expert: run.get("failure", {}).get("reason") for expert, run in runs.items()}
    assert reasons["planned"] is None
    assert reasons["remote"], "the listener answers nothing"
    assert reasons["served"], "the listener answers nothing"
    assert "POLICY" not in reasons.values()
