"""URIs of the MCP resources: artifacts, and the answers and outputs of runs."""

import re
from dataclasses import dataclass

from protos.hugginggpt.v1.artifact_pb2 import Artifact

SCHEME = "hugginggpt"
ARTIFACT = f"{SCHEME}://artifacts/{{sha256}}"
ANSWER = f"{SCHEME}://runs/{{run_id}}/answer"
OUTPUT = f"{SCHEME}://runs/{{run_id}}/tasks/{{task_id}}/{{output}}"

_ARTIFACT = re.compile(rf"(?:{SCHEME}://artifacts/)?([0-9a-f]{{64}})(?:\?tenant=\S*)?")
"""Ignores the signature of a signed download URL."""
_RUN_TEXT = re.compile(rf"{SCHEME}://runs/(run_\w{{1,100}})/(?:answer|tasks/([1-9]\d{{0,8}})/([\w.-]{{1,100}}))")


@dataclass(frozen=True)
class RunText:
    """Reference to the answer or to an output of a run."""

    run_id: str
    task_id: int = 0
    """0 for the answer."""
    output: str = ""


def artifact_uri(artifact: Artifact) -> str:
    return ARTIFACT.format(sha256=artifact.sha256)


def answer_uri(run_id: str) -> str:
    return ANSWER.format(run_id=run_id)


def output_uri(run_id: str, task_id: int, output: str) -> str:
    return OUTPUT.format(run_id=run_id, task_id=task_id, output=output)


def digest(text: str) -> str:
    """The digest of an artifact's URI, or the text itself if it is a digest; empty otherwise."""
    found = _ARTIFACT.fullmatch(text)
    return found[1] if found else ""


def parse_run_uri(uri: str) -> RunText | None:
    """Parses the URI of a run's answer or output; None for other URIs."""
    found = _RUN_TEXT.fullmatch(uri)
    return RunText(found[1], int(found[2] or 0), found[3] or "") if found else None
