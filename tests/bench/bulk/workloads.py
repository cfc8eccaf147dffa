"""Workloads of the section: a pipeline over files, with its targets and the programs that it is compared with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.bulk.arms.work import COLOURS, DOCUMENTS, EMBEDDER, RECORDINGS, THUMBNAILS, TRANSCRIBER
from tests.bench.bulk.data import draw_pictures, record_tones, write_documents

BULK, DAFT, LOOP, RAY_DATA, SERVICE = "bulk", "daft", "loop", "ray_data", "service"
ARMS = (LOOP, "pool", RAY_DATA, SERVICE)
"""Programs, in addition to those of bulk and Daft, that do each workload once."""
FILE_EXPERT, FILE_MODULE = Path(__file__).parent / "file_expert", "tests.bench.bulk.file_expert"

Task = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """A pipeline over files.

    Attributes:
        name: of its work, too.
        about: what it does, for notes.
        count: number of files.
        write: writes them.
        experts: as `experts.bulk` and `experts.host` name them.
        plan: the tasks.
        over_daft: most that bulk may take, over the job for Daft.
        arms: programs that do it once.
    """

    name: str
    about: str
    count: int
    write: Callable[[Path, int], None]
    experts: Sequence[str]
    plan: Sequence[Task]
    over_daft: float
    arms: Sequence[str] = ARMS

    @property
    def pipeline(self) -> Mapping[str, Any]:
        return {"format": "hugginggpt/pipeline/1", "name": self.name, "plan": self.plan}

    @property
    def needs_torch(self) -> bool:
        return any(name != str(FILE_EXPERT) for name in self.experts)

    @property
    def modules(self) -> Sequence[str]:
        """Modules that serve the experts."""
        return [FILE_MODULE if name == str(FILE_EXPERT) else f"experts.{name}" for name in self.experts]


def _first(task: str, port: str, **fields: Any) -> Task:
    """A task of the pipeline's input."""
    return {"id": 1, "task": task, "args": {port: {"input": "file"}}, **fields}


def _second(task: str, port: str, output: str, **fields: Any) -> Task:
    """A task of an output of the first."""
    return {"id": 2, "task": task, "args": {port: {"task_id": 1, "output": output}}, **fields}


WORKLOADS: Sequence[Workload] = (
    Workload(
        COLOURS,
        "JPEGs, 1 % broken, one task",
        2_000,
        draw_pictures,
        (str(FILE_EXPERT),),
        (_first("mean-colours", "image"),),
        over_daft=1.25,  # allows for digests and the columns of the record
    ),
    Workload(
        THUMBNAILS,
        "JPEGs, 1 % broken, a thumbnail and a task of it",
        1_000,
        draw_pictures,
        (str(FILE_EXPERT),),
        (_first("thumbnail", "image"), _second("mean-colours", "image", "image")),
        over_daft=1.25,
    ),
    Workload(
        DOCUMENTS,
        "PDFs, text and embedding",
        300,
        write_documents,
        (str(FILE_EXPERT), "text"),
        (_first("document-text", "image"), _second("feature-extraction", "text", "text", model=EMBEDDER)),
        over_daft=1.15,
        arms=(*ARMS, "transformers"),
    ),
    Workload(
        RECORDINGS,
        "WAV files, tiny Whisper",
        300,
        record_tones,
        ("audio",),
        (_first("automatic-speech-recognition", "audio", model=TRANSCRIBER),),
        over_daft=1.15,
        arms=(*ARMS, "transformers"),
    ),
)
BY_NAME: Mapping[str, Workload] = {workload.name: workload for workload in WORKLOADS}
