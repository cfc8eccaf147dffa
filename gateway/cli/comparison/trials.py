"""One model's answer about one file: a run of one task, by that model alone, without what earlier runs gave."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.cli.comparison.similarity import Answer, answer
from gateway.client import Artifact, HuggingGPT, Options, Run, Source

HELD_SECONDS = 3600
"""How long a file is kept that no run refers to; the least a gateway takes."""

FILE = "file1"
"""What the gateway calls the only file of a run."""


@dataclass(frozen=True)
class Contestant:
    """A model that is compared."""

    id: str
    revision: str = ""

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


Tell = Callable[[int, Contestant], None]


@dataclass(frozen=True)
class Exercise:
    """What every model is to do with every file."""

    task: str
    port: str
    """That takes the file."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the other ports."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    policy: Literal["local", "open"] | None = None
    """Whether bytes may leave the house; None: as the gateway is set up."""

    def options(self, model: Contestant) -> Options:
        """Of a run by one model."""
        options = Options(plan=self._plan(model), mode="results", bypass_memo=True, metadata={"compared": str(model)})
        if self.policy:
            options["policy"] = self.policy
        return options

    def _plan(self, model: Contestant) -> list[dict[str, Any]]:
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
    """What came of it."""

    answer: Answer | None
    """None: it failed."""
    error: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """From the call of the model to its end."""
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
    house: HuggingGPT, exercise: Exercise, models: Sequence[Contestant], files: Sequence[Source], told: Tell
) -> Iterator[list[Trial]]:
    """For each file what each model made of it, one after the other, so that none is slowed down by another.

    Args:
        house: where they run.
        exercise: what they do.
        models: in the order in which they take turns.
        files: each is sent once.
        told: which file is given to which model now.
    """
    for number, file in enumerate(files):
        held, row = _held(house, file), []
        for model in models:
            told(number, model)
            row.append(Trial.of(house.ask(files=[held], **exercise.options(model))))
        yield row


def _held(house: HuggingGPT, file: Source) -> Source:
    """The file, sent if it is here, so that no model waits for it."""
    if isinstance(file, str | Artifact):
        return file
    return house.upload(file, expires_after=HELD_SECONDS).artifact  # type: ignore[arg-type]  # a path: what --file names
