"""A local stack with runs in PostgreSQL, two orchestrators, and metrics endpoints."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from services.local.ports import free_address
from tests.system.conftest import start_local_stack

pytestmark = pytest.mark.slow


def read_metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


def test_runs_are_stored_in_postgresql_and_counted(tmp_path: Path, postgres: str) -> None:
    first = free_address("127.0.0.1:0", option="metrics")
    host, _, port = first.rpartition(":")
    settings = {"ORCHESTRATOR_JOURNAL": postgres, "METRICS_LISTEN": first}
    with start_local_stack(tmp_path / "home", "--experts", "lite", "--orchestrators", "2", **settings) as local_stack:
        result = local_stack.run_cli("ask", "Is this text happy: I love it", "--json", "--fresh")
        assert json.loads(result.out)["status"] == "completed", result.err
        orchestrators = "".join(read_metrics(f"{host}:{int(port) + offset}") for offset in (1, 2))
        assert "process_resident_memory_bytes" in read_metrics(first)
    assert 'runs_ended_total{reason="",state="RUN_STATE_COMPLETED"} 1.0' in orchestrators
    assert re.search(r'expert_queue_depth\{expert="lite",gen_ai_request_model="[^"]+"\} 0\.0', orchestrators)
    assert "journal_write_duration_seconds_bucket" in orchestrators
    assert not list((tmp_path / "home").glob("journal.sqlite*"))
