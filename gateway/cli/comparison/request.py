"""What is to be compared, held against what the house can do before any work starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from gateway.cli.comparison.trials import Contestant, Exercise
from gateway.cli.errors import USAGE, Problem
from gateway.client import HuggingGPT

_LISTED = 5
"""Names in a remedy."""

Told = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What was asked for.

    Args:
        task: by name.
        models: by id, with @revision where a commit is meant.
        files: names, patterns, URLs and ids of kept files.
        settings: NAME=VALUE of other ports and of parameters.
        labels: a table of what is right.
        scores: a file to which scores are added.
        policy: whether bytes may leave the house; None: as the gateway is set up.
    """

    task: str
    models: Sequence[str]
    files: Sequence[str]
    settings: Sequence[str] = ()
    labels: Path | None = None
    scores: Path | None = None
    policy: Literal["local", "open"] | None = None

    def check(self) -> None:
        """Raises Problem for what can be seen without a house."""
        if len(set(self.models)) < len(self.models):
            raise _wrong("a model is named twice", "name each once in --models")
        if not self.models:
            raise _wrong("no model is named", "name two in --models; see hugginggpt models")
        if not self.labels and not self.models[1:]:
            raise _wrong("one model has nothing to be compared with", "name two in --models, or give --labels")
        if self.scores and not self.labels:
            raise _wrong("without labels there are no scores", "give --labels, or leave --save-scores out")


def exercise(house: HuggingGPT, wanted: Wanted) -> Exercise:
    """What every model is to do.

    Raises:
        Problem: there is no such task, or it needs something else.
    """
    kinds = {kind["name"]: kind for kind in house.fetch("/v1/tasks")["data"]}
    if wanted.task not in kinds:
        near = get_close_matches(wanted.task, kinds, n=_LISTED)
        raise _wrong(f"nobody offers {wanted.task}", f"use {' or '.join(near)}" if near else "see hugginggpt tasks")
    kind = kinds[wanted.task]
    ports = {port["name"]: port for port in kind["inputs"]}
    parameters = {parameter["name"] for parameter in kind.get("parameters", ())}
    given = dict(map(_setting, wanted.settings))
    for name in given.keys() - ports.keys() - parameters:
        raise _wrong(f"{wanted.task} takes no {name}", _instead(name, {*ports, *parameters}, "hugginggpt tasks"))
    return Exercise(
        wanted.task,
        _port(wanted.task, [port for name, port in ports.items() if name not in given]),
        {name: text for name, text in given.items() if name in ports},
        {name: _value(text) for name, text in given.items() if name in parameters},
        wanted.policy,
    )


def contestants(house: HuggingGPT, wanted: Wanted) -> list[Contestant]:
    """The models.

    Raises:
        Problem: one is not offered for the task.
    """
    cards = house.fetch(f"/v1/models?task={wanted.task}")["models"]
    there = {card["id"]: {other.get("revision", "") for other in cards if other["id"] == card["id"]} for card in cards}
    return [_contestant(text, wanted.task, there) for text in wanted.models]


def _contestant(text: str, task: str, there: Mapping[str, set[str]]) -> Contestant:
    model, _, revision = (text, "", "") if text in there else text.rpartition("@")
    if model not in there:
        raise _wrong(f"no expert offers {text} for {task}", _instead(text, there, "hugginggpt models"))
    if revision and revision not in there[model]:
        known = " or ".join(sorted(there[model]))
        raise _wrong(f"{model} is not there at revision {revision}", f"name {known or 'no revision'}")
    return Contestant(model, revision)


def _port(task: str, left: Sequence[Told]) -> str:
    """The port that takes the file: the only one that is left, or the only one that is no text."""
    required = [port for port in left if port.get("required")]
    files = required if not required[1:] else [port for port in required if port["modality"] != "text"]
    if len(files) != 1:
        names = [port["name"] for port in required]
        what = f"{task} takes {' and '.join(names)}" if names else f"nothing of {task} is left for the files"
        raise _wrong(what, "leave one of them for --files, and give the others with --set NAME=VALUE")
    (port,) = files
    if missing := [other["name"] for other in required if other is not port]:
        raise _wrong(f"{task} also takes {' and '.join(missing)}", f"add --set {missing[0]}=…")
    return str(port["name"])


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _wrong(f"--set {text} names no value", "write NAME=VALUE")
    return name, value


def _value(text: str) -> Any:
    """JSON, else words."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _instead(name: str, known: Mapping[str, Any] | set[str], otherwise: str) -> str:
    near = get_close_matches(name, known, n=_LISTED, cutoff=0.4) or sorted(known)[:_LISTED]
    return f"use {' or '.join(near)}" if near else f"see {otherwise}"


def _wrong(what: str, remedy: str) -> Problem:
    return Problem(what, remedy=remedy, status=USAGE)
