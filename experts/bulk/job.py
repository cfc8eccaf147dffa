"""A bulk job, as a JSON file: what to run on which inputs, and where the results go."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experts.bulk.pipeline import COLUMNS, DEFAULT_EXPERTS, FILES
from services.common.errors import FailedPrecondition, InvalidRequest

FILE_SUFFIXES = (".jsonl", ".csv")
PART_ROWS = 1_000
NATIVE, RAY = "native", "ray"

_ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+")


@dataclass(frozen=True)
class ErrorLimit:
    """Number or share of failed rows at which a job stops; never, if both are 0."""

    count: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "ErrorLimit":
        """Reads "100" or "5%".

        Raises:
            InvalidRequest: it is neither.
        """
        number = text.removesuffix("%").strip()
        try:
            limit = cls(share=float(number) / 100) if text.endswith("%") else cls(count=int(number or 0))
        except ValueError:
            limit = cls(count=-1)
        if limit.count < 0 or not 0 <= limit.share <= 1:
            raise InvalidRequest(
                f"{text!r} is no number of errors", remedy="give a number such as 100, or a share such as 5%"
            )
        return limit

    def is_reached(self, failed: int, done: int) -> bool:
        """Whether so many failed rows end the job; a share counts from MIN_ROWS on."""
        if self.count:
            return failed >= self.count
        return bool(self.share) and done >= MIN_ROWS and failed > self.share * done


MIN_ROWS = 20
"""Rows from which a share of errors means anything; also the rows of a trial run."""


@dataclass(frozen=True)
class Job:
    """A bulk job."""

    pipeline: Mapping[str, Any]
    """Content of a pipeline file."""
    sources: Sequence[str]
    to: str
    """Folder or object URL that ends in /, or a .jsonl or .csv file."""
    experts: Sequence[str] = DEFAULT_EXPERTS
    """Names of experts, or folders of other ones."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Inputs that are the same for all rows: text or path by name."""
    policy: str = ""
    """"local" or "open"; empty for the pipeline's own."""
    runner: str = NATIVE
    """As engine.connect takes it."""
    limit: int = 0
    """Most inputs to list; 0: all."""
    dry_run: bool = False
    stop_after_errors: str = ""
    workers: int = 0
    """Worker processes of each task; 0: one for each GPU, or for each core."""
    media: str = FILES
    """Where media that the pipeline makes are: "files" next to the table, or "columns" of it."""
    part_rows: int = PART_ROWS
    """Rows after which a part is written."""
    gpu_hour_price: float = 0.0
    """Price of an hour of one GPU, for the forecast of a trial run."""
    as_json: bool = False
    """Whether the summary is JSON."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidRequest("the job has no inputs", remedy="name files, folders, or tables with --from")
        check_runner(self.runner)
        ErrorLimit.parse(self.stop_after_errors)
        if not self.to and not self.dry_run:
            raise InvalidRequest("the job has no output", remedy="name a folder or file with --to")
        if self.media not in {FILES, COLUMNS}:
            raise InvalidRequest(f"media cannot be {self.media!r}", remedy=f"use {FILES} or {COLUMNS}")
        if self.media == COLUMNS and self.file:
            raise InvalidRequest(
                f"{self.file} cannot have media as columns: they are bytes",
                remedy=f"name a folder for Parquet files with --to, or use --media {FILES}",
            )

    @property
    def error_limit(self) -> ErrorLimit:
        return ErrorLimit.parse(self.stop_after_errors)

    @property
    def file(self) -> str:
        """The .jsonl or .csv file of results; empty if they are only the parts."""
        return self.to if self.to.endswith(FILE_SUFFIXES) else ""

    @property
    def folder(self) -> str:
        """Folder of the parts: next to the file of results, if there is one."""
        return f"{self.to}.parts" if self.file else self.to


def check_runner(runner: str) -> None:
    """Checks the runner of a job, without connecting to it.

    Raises:
        InvalidRequest: there is no such runner.
        FailedPrecondition: Ray is not installed.
    """
    if runner not in {NATIVE, RAY} and not _ADDRESS.fullmatch(runner):
        raise InvalidRequest(
            f"{runner!r} is no runner", remedy="use native, ray for a cluster on this machine, or ray://HOST:PORT"
        )
    if runner != NATIVE and find_spec("ray") is None:
        raise FailedPrecondition("Ray is not installed", remedy="install the extra bulk-ray of hugginggpt")


def read_job(file: Path) -> Job:
    """Reads a job file.

    Raises:
        InvalidRequest: it cannot be read, or is no job.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot read the job {file}: {error}", remedy="give a job file as JSON") from error
    known = {each.name for each in fields(Job)}
    if not isinstance(content, dict) or not {"pipeline", "sources"} <= content.keys():
        raise InvalidRequest(f"{file} is no job", remedy="give an object with at least pipeline, sources and to")
    if unknown := sorted(content.keys() - known):
        raise InvalidRequest(f"a job has no field {unknown[0]}", remedy=f"its fields are {', '.join(sorted(known))}")
    return Job(**{"to": "", **content})
