"""URIs under which an agent reads what a run has made."""

import re
from dataclasses import dataclass

from protos.hugginggpt.v1.artifact_pb2 import Artifact

SCHEME = "hugginggpt"
ARTIFACT = f"{SCHEME}://artifacts/{{sha256}}"
ANSWER = f"{SCHEME}://runs/{{run_id}}/answer"
OUTPUT = f"{SCHEME}://runs/{{run_id}}/tasks/{{task_id}}/{{output}}"

_ARTIFACT = re.compile(rf"(?:{SCHEME}://artifacts/)?([0-9a-f]{{64}})(?:\?tenant=\S*)?")
"""A signature, which an address for browsers has, says nothing here."""
_OF_RUN = re.compile(rf"{SCHEME}://runs/(run_\w{{1,100}})/(?:answer|tasks/([1-9]\d{{0,8}})/([\w.-]{{1,100}}))")


@dataclass(frozen=True)
class OfRun:
    """A text that a run has made."""

    run_id: str
    task_id: int = 0
    """0 for the answer."""
    output: str = ""


def of_artifact(artifact: Artifact) -> str:
    return ARTIFACT.format(sha256=artifact.sha256)


def of_answer(run_id: str) -> str:
    return ANSWER.format(run_id=run_id)


def of_output(run_id: str, task_id: int, output: str) -> str:
    return OUTPUT.format(run_id=run_id, task_id=task_id, output=output)


def digest(text: str) -> str:
    """The digest in an artifact's URI, or that is the text; empty if there is none."""
    found = _ARTIFACT.fullmatch(text)
    return found[1] if found else ""


def of_run(uri: str) -> OfRun | None:
    """What of a run a URI means; None if it means something else."""
    found = _OF_RUN.fullmatch(uri)
    return OfRun(found[1], int(found[2] or 0), found[3] or "") if found else None
