"""Descriptions of experts that may scale to zero are in the manifests, and are those that their code prints."""

import json
import os
import subprocess
import sys

import pytest
from google.protobuf import json_format

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from tests.manifests.environment import PROGRAMS_WITH_MODELS
from tests.manifests.rendering import K8S, render_overlay

pytestmark = pytest.mark.slow

EXPERTS = tuple(module.removeprefix("experts.") for module in PROGRAMS_WITH_MODELS)


@pytest.mark.parametrize("expert", EXPERTS)
def test_description_is_current(expert: str) -> None:
    """`make descriptions` writes them after a change of models or tasks."""
    command = [sys.executable, "-m", f"experts.{expert}", "--describe"]
    environment = os.environ | {"EXPERT_SCALES_TO_ZERO": "true"}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    file = K8S / "components" / expert / "keda" / f"{expert}.json"
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(printed), "run make descriptions"


@pytest.mark.parametrize("expert", EXPERTS)
def test_selector_reads_description_as_that_of_a_dormant_expert(expert: str) -> None:
    file = K8S / "components" / expert / "keda" / f"{expert}.json"
    reply = json_format.Parse(file.read_text(encoding="utf-8"), DescribeResponse())
    assert reply.expert == expert
    assert reply.scales_to_zero
    assert reply.models


@pytest.mark.needs("kubectl")
def test_production_describes_all_experts_that_may_scale_to_zero() -> None:
    (config,) = (
        each
        for each in render_overlay("production").of_kind("ConfigMap")
        if each["metadata"]["name"].startswith("expert-descriptions-")
    )
    assert set(config["data"]) == {f"{expert}.json" for expert in EXPERTS}
