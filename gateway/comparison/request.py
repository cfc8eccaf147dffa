"""Request of a comparison, validated against the gateway's tasks and models before any run starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from gateway.client import HuggingGPT, InvalidRequest
from gateway.comparison.trials import ComparedModel, ComparedTask

_LISTED = 5
"""Names suggested in a remedy."""

JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonRequest:
    """Options of hugginggpt compare.

    Args:
        task: name of the task.
        models: model ids, with @revision for one commit.
        files: paths, patterns, URLs and ids of stored files.
        settings: NAME=VALUE of other inputs and of parameters.
        labels: table of expected answers.
        scores: file to which scores are added.
        policy: whether data may leave the deployment; None for the gateway's default.
    """

    task: str
    models: Sequence[str]
    files: Sequence[str]
    settings: Sequence[str] = ()
    labels: Path | None = None
    scores: Path | None = None
    policy: Literal["local", "open"] | None = None

    def check(self) -> None:
        """Raises InvalidRequest for errors that are visible without a gateway."""
        if len(set(self.models)) < len(self.models):
            raise _invalid("a model is given twice", "give each model once in --models")
        if not self.models:
            raise _invalid("no model is given", "give two in --models; see hugginggpt models")
        if not self.labels and not self.models[1:]:
            raise _invalid("a single model needs labels to compare with", "give two in --models, or give --labels")
        if self.scores and not self.labels:
            raise _invalid("--save-scores needs --labels", "give --labels, or leave --save-scores out")


def compared_task(client: HuggingGPT, request: ComparisonRequest) -> ComparedTask:
    """The task that every model runs.

    Raises:
        InvalidRequest: the task is unknown, or needs other inputs.
    """
    specs = {spec["name"]: spec for spec in client.fetch("/v1/tasks")["data"]}
    if request.task not in specs:
        near = get_close_matches(request.task, specs, n=_LISTED)
        raise _invalid(
            f"no expert offers {request.task}", f"use {' or '.join(near)}" if near else "see hugginggpt tasks"
        )
    spec = specs[request.task]
    ports = {port["name"]: port for port in spec["inputs"]}
    parameters = {parameter["name"] for parameter in spec.get("parameters", ())}
    given = dict(map(_setting, request.settings))
    for name in given.keys() - ports.keys() - parameters:
        raise _invalid(
            f"{request.task} has no input or parameter {name}",
            _suggestion(name, {*ports, *parameters}, "hugginggpt tasks"),
        )
    return ComparedTask(
        request.task,
        _port(request.task, [port for name, port in ports.items() if name not in given]),
        {name: text for name, text in given.items() if name in ports},
        {name: _value(text) for name, text in given.items() if name in parameters},
        request.policy,
    )


def compared_models(client: HuggingGPT, request: ComparisonRequest) -> list[ComparedModel]:
    """The models to compare.

    Raises:
        InvalidRequest: a model is not available for the task.
    """
    cards = client.fetch(f"/v1/models?task={request.task}")["models"]
    revisions = {
        card["id"]: {other.get("revision", "") for other in cards if other["id"] == card["id"]} for card in cards
    }
    return [_compared_model(text, request.task, revisions) for text in request.models]


def _compared_model(text: str, task: str, revisions: Mapping[str, set[str]]) -> ComparedModel:
    model, _, revision = (text, "", "") if text in revisions else text.rpartition("@")
    if model not in revisions:
        raise _invalid(f"no expert offers {text} for {task}", _suggestion(text, revisions, "hugginggpt models"))
    if revision and revision not in revisions[model]:
        known = " or ".join(sorted(revisions[model]))
        raise _invalid(f"{model} has no revision {revision}", f"use {known or 'no revision'}")
    return ComparedModel(model, revision)


def _port(task: str, inputs: Sequence[JsonObject]) -> str:
    """The input for the files: the only required one, or the only required one that is not text."""
    required = [port for port in inputs if port.get("required")]
    files = required if not required[1:] else [port for port in required if port["modality"] != "text"]
    if len(files) != 1:
        names = [port["name"] for port in required]
        what = (
            f"several inputs of {task} could take the files: {', '.join(names)}"
            if names
            else f"{task} has no input left for the files"
        )
        raise _invalid(what, "set all inputs but one with --set NAME=VALUE")
    (port,) = files
    if missing := [other["name"] for other in required if other is not port]:
        raise _invalid(f"{task} also needs {' and '.join(missing)}", f"add --set {missing[0]}=…")
    return str(port["name"])


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _invalid(f"--set {text} has no value", "write NAME=VALUE")
    return name, value


def _value(text: str) -> Any:
    """Parses JSON; other text is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _suggestion(name: str, known: Mapping[str, Any] | set[str], otherwise: str) -> str:
    near = get_close_matches(name, known, n=_LISTED, cutoff=0.4) or sorted(known)[:_LISTED]
    return f"use {' or '.join(near)}" if near else f"see {otherwise}"


def _invalid(what: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(what, code="COMPARISON", remedy=remedy)
