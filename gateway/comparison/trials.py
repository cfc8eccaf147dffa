"""Runs of one task by one model on one file, without cached results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.client import Artifact, HuggingGPT, Options, Run, Source
from gateway.comparison.similarity import Answer, answer

UPLOAD_SECONDS = 3600
"""Retention of an uploaded file that no run refers to; the gateway's minimum."""

FILE = "file1"
"""The gateway's name of the only file of a run."""


@dataclass(frozen=True)
class ComparedModel:
    """A model to compare."""

    id: str
    revision: str = ""

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


OnTrial = Callable[[int, ComparedModel], None]


@dataclass(frozen=True)
class ComparedTask:
    """The task that every model runs on every file."""

    task: str
    port: str
    """Input for the file."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Values of the other inputs."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    policy: Literal["local", "open"] | None = None
    """Whether data may leave the deployment; None for the gateway's default."""

    def options(self, model: ComparedModel) -> Options:
        """Options of a run by one model."""
        options = Options(plan=self._plan(model), mode="results", bypass_memo=True, metadata={"compared": str(model)})
        if self.policy:
            options["policy"] = self.policy
        return options

    def _plan(self, model: ComparedModel) -> list[dict[str, Any]]:
        pinned = {"pinned_model": model.id, "pinned_revision": model.revision}
        task = {
            "id": 1,
            "task": self.task,
            "arguments": {self.port: {"input": FILE}, **self.arguments},
            "parameters": dict(self.parameters),
        }
        return [task | {key: value for key, value in pinned.items() if value}]


@dataclass(frozen=True)
class Trial:
    """Result of one run."""

    answer: Answer | None
    """None if the run failed."""
    error: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """Duration of the model's call in seconds."""
    cost: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    run_id: str = ""
    revision: str = ""
    expert: str = ""

    @classmethod
    def of(cls, run: Run) -> "Trial":
        result = run.tasks[0].result if run.tasks else None
        failure = (result.failure if result else None) or run.failure
        if result is None or failure or not result.outputs:
            error = failure.message if failure else f"the run ended {run.state}"
            return cls(None, error, run_id=run.run_id)
        usage = (result.model_extra or {}).get("usage", {})
        return cls(
            answer(result.outputs),
            outputs=result.outputs,
            seconds=usage.get("elapsed"),
            cost=usage.get("cost", 0.0),
            input_tokens=usage.get("input_tokens", 0),
            output_tokens=usage.get("output_tokens", 0),
            run_id=run.run_id,
            revision=result.by.revision if result.by else "",
            expert=result.by.expert if result.by else "",
        )


def trials(
    client: HuggingGPT,
    compared_task: ComparedTask,
    models: Sequence[ComparedModel],
    files: Sequence[Source],
    on_trial: OnTrial,
) -> Iterator[list[Trial]]:
    """Runs all models on each file, one at a time so that they do not slow each other down.

    Args:
        client: client of the gateway.
        compared_task: the task.
        models: models in the order of the runs.
        files: files; each is uploaded once.
        on_trial: called before each run with the number of the file and the model.
    """
    for number, file in enumerate(files):
        uploaded, row = _uploaded(client, file), []
        for model in models:
            on_trial(number, model)
            row.append(Trial.of(client.ask(files=[uploaded], **compared_task.options(model))))
        yield row


def _uploaded(client: HuggingGPT, file: Source) -> Source:
    """Uploads a local file before the first run, so that no run's duration includes it."""
    if isinstance(file, str | Artifact):
        return file
    return client.upload(file, expires_after=UPLOAD_SECONDS).artifact  # type: ignore[arg-type]  # a path
