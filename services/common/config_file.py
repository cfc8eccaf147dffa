"""A file that an operator writes, YAML or JSON: what is wrong with it is told with the line and what would help."""

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from services.common.errors import FailedPrecondition

M = TypeVar("M", bound=BaseModel)
Steps = tuple[int | str, ...]


def read(path: Path, model: type[M], setting: str) -> M:
    """What the file says.

    Args:
        path: of the file.
        model: what it has to say; forbids keys that it does not have.
        setting: the variable that names the file.

    Raises:
        FailedPrecondition: with the file's name, the line and what would help.
    """
    wrong = _Wrong(path, setting)
    node = _composed(path, wrong)
    for line, key in _twice(node):
        raise wrong.at(line, f"{key} stands there more than once", "make one entry of them")
    try:
        return model.model_validate(_plain(node))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        first = min(errors, key=lambda one: one["type"] == "missing")  # a misspelt name tells more than its absence
        steps = first["loc"]
        if first["type"] == "extra_forbidden":
            what, remedy = f"{_dotted(steps)}: there is no such key", _nearest(str(steps[-1]), model)
        else:
            what, remedy = f"{_dotted(steps)}: {first['msg'].removeprefix('Value error, ')}", "correct that entry"
        raise wrong.at(_line(node, steps), what, remedy) from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise wrong.at(0, "holds something else than text, numbers, lists and maps", "correct it") from error


class _Wrong:
    """How a fault of the file is told."""

    def __init__(self, path: Path, setting: str) -> None:
        self._path, self._setting = path, setting

    def at(self, line: int, what: str, remedy: str) -> FailedPrecondition:
        """Line 0: of the file as a whole."""
        where = f"{self._path.name}, line {line}" if line else self._path.name
        return FailedPrecondition(f"{self._setting}: {where}: {what}", remedy=f"{remedy} in {self._path}")

    def missing(self) -> FailedPrecondition:
        """Nothing is there."""
        what = f"{self._setting}: there is no file {self._path.name}"
        return FailedPrecondition(what, remedy=f"put it at {self._path}, or name another")


def _composed(path: Path, wrong: _Wrong) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError as error:
        raise wrong.missing() from error
    except OSError as error:
        raise wrong.at(0, f"cannot be read: {error.strerror}", "correct the access") from error
    except UnicodeDecodeError as error:
        raise wrong.at(0, "is no text in UTF-8", "correct it") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise wrong.at(line, f"is neither YAML nor JSON: {error.problem}", "correct it") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # a letter that there is not
        raise wrong.at(0, "is neither YAML nor JSON", "correct it") from error


def _plain(node: yaml.Node | None) -> Any:
    if node is None:
        return {}
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _twice(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Keys that a map has twice, of which YAML would take the last, with their lines."""
    waiting, met = [node], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in met:  # an alias
            continue
        met.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = Counter(str(key.value) for key, _ in node.value)
            yield from ((key.start_mark.line + 1, key.value) for key, _ in node.value if keys[str(key.value)] > 1)
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _line(node: yaml.Node | None, steps: Steps) -> int:
    """Of the innermost entry on the way that is there."""
    line = 0
    for step in (*steps, None):
        if node is None:
            break
        line, node = node.start_mark.line + 1, _inside(node, step)
    return line


def _inside(node: yaml.Node, step: int | str | None) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None


def _dotted(steps: Steps) -> str:
    return ".".join(map(str, steps)) or "the whole"


def _nearest(key: str, model: type[BaseModel]) -> str:
    known = sorted(set(_keys(model.model_json_schema())))
    near = get_close_matches(key, known, n=1)
    return f"write {near[0]}" if near else f"take it out (there are {', '.join(known)})"


def _keys(schema: Any) -> Iterator[str]:
    """The keys that a JSON Schema knows, at any depth."""
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name == "properties":
                yield from inner
            yield from _keys(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _keys(inner)
