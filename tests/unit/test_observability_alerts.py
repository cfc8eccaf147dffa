"""Alert rules: Prometheus takes them, each fires when it should and not before, and each leads to its runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import K8S
from tests.observability.queries import FOLDER, RULES, rules

pytestmark = pytest.mark.needs("promtool")

HTTP = 'http_server_request_duration_seconds_count{http_response_status_code="%s"}'
RPC = 'rpc_server_call_duration_seconds_count{rpc_method="m", rpc_response_status_code="%s"}'
LLM = 'gen_ai_client_operation_duration_seconds_count{gen_ai_request_model="m", hugginggpt_llm_role="planner"%s}'
RUN = 'gen_ai_workflow_duration_seconds_bucket{state="RUN_STATE_COMPLETED", le="%s"}'
MEMORY = 'expert_memory_bytes{instance="i", device="cuda:0", kind="%s"}'
EVICTED = 'expert_model_evictions_total{instance="i", device="cuda:0"}'
JOURNAL = 'journal_write_duration_seconds_bucket{le="%s"}'
GPU = {"instance": "i", "device": "cuda:0"}
FAILED_JOB = 'kube_job_status_failed{namespace="n", job_name="prefetch-text-1"}'
VOLUME = 'kubelet_volume_stats_%s_bytes{persistentvolumeclaim="models"}'
PENDING = 'kube_pod_status_phase{phase="Pending", namespace="n", pod="expert-a"}'
GPU_REQUEST = 'kube_pod_container_resource_requests{resource="nvidia_com_gpu", namespace="n", pod="expert-a"}'

Series = dict[str, str]
CASES: dict[str, tuple[Series, Series, dict[str, str]]] = {
    "ProcessDown": (
        {'up{job="hugginggpt/hugginggpt", instance="i"}': "0x90"},
        {'up{job="hugginggpt", instance="i"}': "1x90"},
        {"job": "hugginggpt/hugginggpt", "instance": "i"},
    ),
    "HttpErrors": ({HTTP % 200: "0+90x90", HTTP % 503: "0+10x90"}, {HTTP % 200: "0+99x90", HTTP % 503: "0+1x90"}, {}),
    "Refusals": ({HTTP % 200: "0+80x90", HTTP % 429: "0+20x90"}, {HTTP % 200: "0+95x90", HTTP % 429: "0+5x90"}, {}),
    "RpcErrors": (
        {RPC % "OK": "0+80x90", RPC % "UNAVAILABLE": "0+20x90"},
        {RPC % "OK": "0+80x90", RPC % "CANCELLED": "0+20x90"},
        {"rpc_method": "m"},
    ),
    "RunsFail": (
        {'runs_ended_total{state="RUN_STATE_FAILED", reason="DEADLINE"}': "0+20x90"},
        {'runs_ended_total{state="RUN_STATE_FAILED", reason="CLARIFY"}': "0+20x90"},
        {},
    ),
    "RunsSlow": (
        {RUN % 60: "0+8x90", RUN % 180: "0+10x90", RUN % "+Inf": "0+10x90"},
        {RUN % 60: "0+10x90", RUN % 180: "0+10x90", RUN % "+Inf": "0+10x90"},
        {},
    ),
    "JournalSlow": (
        {JOURNAL % 0.25: "0x90", JOURNAL % 0.5: "0+9x90", JOURNAL % "+Inf": "0+9x90"},
        {JOURNAL % 0.25: "0+9x90", JOURNAL % 0.5: "0+9x90", JOURNAL % "+Inf": "0+9x90"},
        {},
    ),
    "Takeovers": ({"runs_taken_over_total": "0+1x90"}, {"runs_taken_over_total": "2x90"}, {}),
    "CircuitOpen": (
        {'circuit_open{expert="e", kind="model"}': "1x90"},
        {'circuit_open{expert="e", kind="model"}': "0x90"},
        {"expert": "e", "kind": "model"},
    ),
    "QueueGrows": (
        {'expert_queue_depth{expert="e"}': "40x90"},
        {'expert_queue_depth{expert="e"}': "30x90"},
        {"expert": "e"},
    ),
    "LoadsFail": (
        {'expert_model_load_duration_seconds_count{gen_ai_request_model="m", outcome="failed"}': "0+1x90"},
        {'expert_model_load_duration_seconds_count{gen_ai_request_model="m", outcome="loaded"}': "0+1x90"},
        {"gen_ai_request_model": "m"},
    ),
    "MemoryFull": (
        {MEMORY % "models": "99x90", MEMORY % "budget": "100x90", EVICTED: "0+2x90"},
        {MEMORY % "models": "99x90", MEMORY % "budget": "100x90"},
        GPU,
    ),
    "LlmErrors": (
        {LLM % "": "0+8x90", LLM % ', error_type="SLOW"': "0+2x90"},
        {LLM % "": "0+8x90", LLM % ', error_type="CANCELLED"': "0+2x90"},
        {"gen_ai_request_model": "m", "hugginggpt_llm_role": "planner"},
    ),
    "CostRate": ({"llm_cost_total": "0+0.1x90", "task_cost_total": "0+0.1x90"}, {"task_cost_total": "0+0.1x90"}, {}),
    "TracesLost": (
        {"otelcol_exporter_send_failed_spans": "0+9x90"},
        {"otelcol_exporter_send_failed_spans": "5x90"},
        {},
    ),
    "JobFailed": (
        {FAILED_JOB: "1x90"},
        {FAILED_JOB: "1x90", FAILED_JOB.replace("failed", "succeeded"): "1x90"},
        {"namespace": "n", "job_name": "prefetch-text-1"},
    ),
    "VolumeFull": (
        {VOLUME % "available": "5x90", VOLUME % "capacity": "100x90"},
        {VOLUME % "available": "50x90", VOLUME % "capacity": "100x90"},
        {"persistentvolumeclaim": "models"},
    ),
    "CertificateExpires": (
        {'certmanager_certificate_expiration_timestamp_seconds{name="hugginggpt"}': "86400x90"},
        {'certmanager_certificate_expiration_timestamp_seconds{name="hugginggpt"}': "8640000x90"},
        {"name": "hugginggpt"},
    ),
    "GpuPodPending": ({PENDING: "1x90", GPU_REQUEST: "1x90"}, {PENDING: "1x90"}, {"namespace": "n", "pod": "expert-a"}),
}
"""Series of a minute each that make an alert fire, series that do not, and the labels that it has then."""


def test_prometheus_takes_its_configuration() -> None:
    subprocess.run(["promtool", "check", "config", str(FOLDER / "prometheus" / "config.yaml")], check=True)


@pytest.mark.parametrize("alert", CASES)
def test_alert_fires_at_its_threshold(alert: str, tmp_path: Path) -> None:
    loud, quiet, labels = CASES[alert]
    (rule,) = (each for each in rules() if each["alert"] == alert)
    fires = {"exp_labels": rule["labels"] | labels, "exp_annotations": rule["annotations"]}
    rule_test = {"rule_files": [str(RULES)], "tests": [_test(alert, loud, [fires]), _test(alert, quiet, [])]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(rule_test))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _test(alert: str, series: Series, expected: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "80m", "alertname": alert, "exp_alerts": expected}],
    }


def test_every_alert_has_a_rule_test() -> None:
    assert CASES.keys() == {rule["alert"] for rule in rules()}


def test_every_alert_links_its_own_runbook() -> None:
    page = (FOLDER / "README.md").read_text()
    parts = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    there = {name for name, text in parts if all(f"**{word}:**" in text for word in ("Meaning", "Check", "Action"))}
    assert there == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"k8s/components/observability/README.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_operator_rules_equal_the_rule_files() -> None:
    made = yaml.safe_load((K8S / "components" / "prometheus" / "rules.yaml").read_text())
    assert made["spec"] == yaml.safe_load(RULES.read_text()), "make alerts"
