"""Pipelines in Daft and Ray Data programs of users, and jobs on a Ray cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from tests.support.bulk import CLASSIFY, ROOT, read_table, run_job

pytestmark = pytest.mark.slow


DAFT = """
import daft
from experts.bulk import pipeline_frame

if __name__ == "__main__":
    frame = daft.from_pydict({"id": [1, 2], "letter": ["I love it.", "I hate it."]})
    for row in pipeline_frame("classify.json", frame).select("id", "task2.text").to_pylist():
        print(row["id"], row["task2.text"])
"""

MEDIA = """
import daft
from experts.bulk import pipeline_frame

if __name__ == "__main__":
    frame = daft.from_pydict({"words": ["Good morning", "Good night"]})
    for row in pipeline_frame("speak.json", frame).to_pylist():
        print(row["words"], row["audio"]["media_type"], row["audio"]["content"][:4].decode())
"""

RAY_DATA = """
import ray
from experts.bulk import PipelineActor

ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": ROOT}})
letters = ray.data.from_items([{"id": 1, "letter": "I love it."}, {"id": 2, "letter": "I hate it."}])
options = {"pipeline": CLASSIFY}
for row in letters.map_batches(PipelineActor, fn_constructor_kwargs=options, concurrency=1).take_all():
    print(row["id"], row["task2.text"])
"""


def run_program(folder: Path, text: str) -> list[str]:
    """Runs a Python program and returns the lines that it prints."""
    (folder / "program.py").write_text(text)
    (folder / "classify.json").write_text(json.dumps(CLASSIFY))
    plan = [{"id": 1, "task": "text-to-speech", "args": {"text": {"input": "words"}}}]
    (folder / "speak.json").write_text(json.dumps({**CLASSIFY, "plan": plan}))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pipeline_adds_columns_to_a_frame(tmp_path: Path) -> None:
    assert run_program(tmp_path, DAFT) == ["1 positive", "2 negative"]


def test_media_are_columns_of_bytes_without_an_output_folder(tmp_path: Path) -> None:
    assert run_program(tmp_path, MEDIA) == ["Good morning audio/wav RIFF", "Good night audio/wav RIFF"]


def test_pipeline_is_an_actor_of_ray_data(tmp_path: Path) -> None:
    program = RAY_DATA.replace("ROOT", repr(str(ROOT))).replace("CLASSIFY", repr(dict(CLASSIFY)))
    assert sorted(run_program(tmp_path, program)[-2:]) == ["1 positive", "2 negative"]  # rows come in any order


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a Ray cluster of two machines with one core each."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def rows_without_times(folder: Path) -> dict[str, dict[str, Any]]:
    """Rows by input, without computing times."""
    return {
        name: {column: value for column, value in row.items() if not column.endswith(".seconds")}
        for name, row in read_table(folder).items()
    }


def test_job_on_a_ray_cluster_has_the_rows_of_one_on_this_machine(cluster: str, tmp_path: Path) -> None:
    letters = tmp_path / "in"
    letters.mkdir()
    for index in range(40):
        (letters / f"{index:02}.txt").write_text(f"Letter {index} is good.")
    (letters / "broken.txt").write_bytes(b"\xff\xfe\x00")
    distributed = run_job(tmp_path, [letters], tmp_path / "ray", runner=cluster)
    assert distributed.summary["done"] == 41, distributed.errors
    run_job(tmp_path, [letters], tmp_path / "native")
    assert rows_without_times(tmp_path / "ray") == rows_without_times(tmp_path / "native")
