"""Reading an operator's configuration file, YAML or JSON, with errors that name the line and a remedy."""

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from services.common.errors import FailedPrecondition

M = TypeVar("M", bound=BaseModel)
KeyPath = tuple[int | str, ...]
"""Keys and list indexes that lead to an entry."""


def read(path: Path, model: type[M], setting: str) -> M:
    """Reads and validates a file.

    Args:
        path: of the file.
        model: of its content; should forbid unknown keys.
        setting: environment variable that names the file, for error messages.

    Raises:
        FailedPrecondition: it cannot be read or is invalid; with the file's name, the line and a remedy.
    """
    errors = _Errors(path, setting)
    node = _parse(path, errors)
    for line, key in _duplicate_keys(node):
        raise errors.at(line, f"{key} is given more than once", "make one entry of them")
    try:
        return model.model_validate(_construct(node))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        first = min(problems, key=lambda one: one["type"] == "missing")  # a misspelt key explains a missing one
        keys = first["loc"]
        if first["type"] == "extra_forbidden":
            problem, remedy = f"{_dotted(keys)}: unknown key", _suggestion(str(keys[-1]), model)
        else:
            problem, remedy = f"{_dotted(keys)}: {first['msg'].removeprefix('Value error, ')}", "correct that entry"
        raise errors.at(_line(node, keys), problem, remedy) from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise errors.at(0, "contains something else than text, numbers, lists and maps", "correct it") from error


class _Errors:
    """Creates the errors of one file."""

    def __init__(self, path: Path, setting: str) -> None:
        self._path, self._setting = path, setting

    def at(self, line: int, problem: str, remedy: str) -> FailedPrecondition:
        """Error in a line; 0 stands for the whole file."""
        location = f"{self._path.name}, line {line}" if line else self._path.name
        return FailedPrecondition(f"{self._setting}: {location}: {problem}", remedy=f"{remedy} in {self._path}")

    def missing(self) -> FailedPrecondition:
        """Error for a file that does not exist."""
        problem = f"{self._setting}: there is no file {self._path.name}"
        return FailedPrecondition(problem, remedy=f"create {self._path}, or name another file")


def _parse(path: Path, errors: _Errors) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError as error:
        raise errors.missing() from error
    except OSError as error:
        raise errors.at(0, f"cannot be read: {error.strerror}", "correct the permissions") from error
    except UnicodeDecodeError as error:
        raise errors.at(0, "is not UTF-8 text", "correct it") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise errors.at(line, f"is neither YAML nor JSON: {error.problem}", "correct it") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # such as an invalid \U escape
        raise errors.at(0, "is neither YAML nor JSON", "correct it") from error


def _construct(node: yaml.Node | None) -> Any:
    """Plain Python values of a parsed file; an empty map for an empty file."""
    if node is None:
        return {}
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _duplicate_keys(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Repeated keys of a map, with their lines; YAML itself would use the last value."""
    pending, visited = [node], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = Counter(str(key.value) for key, _ in node.value)
            yield from ((key.start_mark.line + 1, key.value) for key, _ in node.value if keys[str(key.value)] > 1)
            pending += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value


def _line(node: yaml.Node | None, keys: KeyPath) -> int:
    """Line of an entry, or of its innermost parent that exists."""
    line = 0
    for key in (*keys, None):
        if node is None:
            break
        line, node = node.start_mark.line + 1, _child(node, key)
    return line


def _child(node: yaml.Node, key: int | str | None) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        return node.value[key] if key < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _dotted(keys: KeyPath) -> str:
    return ".".join(map(str, keys)) or "the whole file"


def _suggestion(key: str, model: type[BaseModel]) -> str:
    """The remedy for an unknown key: the most similar known one, or all of them."""
    known = sorted(set(_known_keys(model.model_json_schema())))
    similar = get_close_matches(key, known, n=1)
    return f"write {similar[0]}" if similar else f"remove it (known keys: {', '.join(known)})"


def _known_keys(schema: Any) -> Iterator[str]:
    """All keys in a JSON Schema, at any depth."""
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name == "properties":
                yield from inner
            yield from _known_keys(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _known_keys(inner)
