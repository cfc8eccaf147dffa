"""What somebody wrote into a file, as JSON or YAML, and in which line each part of it stands."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.cli.errors import USAGE, Problem
from gateway.cli.standard_input import STDIN

YAML_BYTES = 1_000_000
"""Most of it that is read: it is read slowly."""

MOST_PARTS = 50_000
"""Words, lists and maps of YAML: they take longer than their letters."""


@dataclass(frozen=True)
class Document:
    """What a file says."""

    name: str
    content: Any
    node: yaml.Node | None = None
    """As YAML has it; None if it is JSON."""

    def problem(self, what: str, remedy: str, steps: Sequence[str | int] = ()) -> Problem:
        """Something is wrong with the part to which steps lead."""
        return _wrong(self.name, what, remedy, _line(self.node, steps))


def read(file: Path) -> Document:
    """What a file says; - is standard input.

    Raises:
        Problem: it cannot be read, or is neither JSON nor YAML.
    """
    name = "standard input" if str(file) == STDIN else str(file)
    document = _document(_text(file, name), name)
    try:
        json.dumps(document.content, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise _wrong(
            name, "has a number or letter that nobody can send", "take out NaN, Infinity and \\ud800"
        ) from error
    return document


def plan(document: Document) -> list[Any]:
    """The tasks of a plan: a list of them, or what has one under "plan".

    Raises:
        Problem: there is none.
    """
    content = document.content
    found = content.get("plan") if isinstance(content, dict) else content
    if not isinstance(found, list) or not found:
        raise Problem(
            f"{document.name} holds no plan",
            remedy="give a list of tasks, what ask --json printed, or what export wrote",
            status=USAGE,
        )
    return found


def _document(text: str, name: str) -> Document:
    try:
        return Document(name, json.loads(text))
    except json.JSONDecodeError:
        return _yaml(text, name)
    except ValueError as error:
        raise _wrong(name, "has a number with too many digits", "write it as text") from error
    except RecursionError as error:
        raise _wrong(name, "is nested too deeply", "write it flatter") from error


def _text(file: Path, name: str) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise Problem(f"cannot read {name}: {error.strerror}", remedy="check the path", status=USAGE) from error
    except UnicodeDecodeError as error:
        raise _wrong(name, "is not UTF-8 text", "write it as UTF-8") from error


def _yaml(text: str, name: str) -> Document:
    if len(text) > YAML_BYTES:
        raise _wrong(name, "is no JSON, and too long for YAML", f"keep to {YAML_BYTES / 1e6:g} MB, or write JSON")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return Document(name, loader.construct_document(node) if node else None, node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _wrong(name, f"is neither JSON nor YAML: {error.problem}", "correct it", line) from error
    except (ValueError, OverflowError) as error:
        what = "is neither JSON nor YAML: there is no such letter"
        raise _wrong(name, what, "correct it", loader.line + 1) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _wrong(name, "is neither JSON nor YAML", "correct it") from error
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Takes plain words as JSON would: no dates, no numbers but in tens. No part stands for another, no key twice.

    No tag says what a part is.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # filled below, for this class alone

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._parts = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs say nothing of it
        self._parts += 1
        what = ""
        if isinstance(event, yaml.AliasEvent):
            what = "a part stands for another"
        elif event.tag is not None:
            what = "a tag stands there"
        elif self._parts > MOST_PARTS:
            what = f"more than {MOST_PARTS:,} parts have to be JSON"
        if what:
            raise yaml.composer.ComposerError(None, None, what, event.start_mark)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            return super().construct_yaml_int(node)
        except ValueError:
            what = "a number has too many digits"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                what = f"{key.value} stands there more than once"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for tag, pattern, letters in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})$"), letters)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _line(node: yaml.Node | None, steps: Sequence[str | int]) -> int:
    """Of the innermost part on the way that is there; 0 if nobody knows."""
    line = 0
    for step in (*steps, None):
        if node is None:
            break
        line = node.start_mark.line + 1
        node = _inside(node, step)
    return line


def _inside(node: yaml.Node, step: str | int | None) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        found: yaml.Node = node.value[step]
        return found
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None


def _wrong(name: str, what: str, remedy: str, line: int = 0) -> Problem:
    where = f"{name}, line {line}" if line else name
    return Problem(f"{where}: {what}" if line else f"{name} {what}", remedy=remedy, status=USAGE)
