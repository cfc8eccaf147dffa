"""Reads JSON and YAML files, with line numbers for error messages."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.cli.errors import USAGE, Problem
from gateway.cli.options import STDIN

YAML_BYTES = 1_000_000
"""Size limit of YAML files: parsing is slow."""

MAX_NODES = 50_000
"""Limit of nodes in a YAML file: small files can expand to many nodes."""


@dataclass(frozen=True)
class Document:
    """Content of a file."""

    name: str
    content: Any
    node: yaml.Node | None = None
    """Node tree of YAML; None for JSON."""

    def problem(self, what: str, remedy: str, steps: Sequence[str | int] = ()) -> Problem:
        """An error in the part of the document at a path."""
        return _wrong(self.name, what, remedy, _line(self.node, steps))


def read(file: Path) -> Document:
    """Reads a file; `-` is standard input.

    Raises:
        Problem: the file cannot be read, or is neither JSON nor YAML.
    """
    name = "standard input" if str(file) == STDIN else str(file)
    return parse(_text(file, name), name)


def parse(text: str, name: str) -> Document:
    """Reads JSON or YAML.

    Args:
        text: the content.
        name: of the file, for errors.

    Raises:
        Problem: it is neither JSON nor YAML.
    """
    document = _document(text, name)
    try:
        json.dumps(document.content, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise _wrong(
            name,
            "contains a value that JSON cannot express",
            "remove NaN, Infinity and lone surrogates such as \\ud800",
        ) from error
    return document


def plan(document: Document) -> list[Any]:
    """The tasks of a plan: a list, or the list under the key "plan".

    Raises:
        Problem: the document has no plan.
    """
    content = document.content
    found = content.get("plan") if isinstance(content, dict) else content
    if not isinstance(found, list) or not found:
        raise Problem(
            f"{document.name} contains no plan",
            remedy="give a list of tasks, the output of ask --json, or an exported pipeline",
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
        raise _wrong(name, "is nested too deeply", "reduce the nesting") from error


def _text(file: Path, name: str) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise Problem(f"cannot read {name}: {error.strerror}", remedy="check the path", status=USAGE) from error
    except UnicodeDecodeError as error:
        raise _wrong(name, "is not UTF-8 text", "save it as UTF-8") from error


def _yaml(text: str, name: str) -> Document:
    if len(text) > YAML_BYTES:
        raise _wrong(name, "is not JSON, and too long for YAML", f"use at most {YAML_BYTES / 1e6:g} MB, or JSON")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return Document(name, loader.construct_document(node) if node else None, node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _wrong(name, f"is neither JSON nor YAML: {error.problem}", "correct the syntax", line) from error
    except (ValueError, OverflowError) as error:
        what = "is neither JSON nor YAML: invalid character"
        raise _wrong(name, what, "correct the syntax", loader.line + 1) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _wrong(name, "is neither JSON nor YAML", "correct the syntax") from error
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Reads scalars with JSON's types: no dates, only decimal numbers.

    Rejects aliases, tags and duplicate keys.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # filled below, for this class alone

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # untyped in the stubs
        self._nodes += 1
        what = ""
        if isinstance(event, yaml.AliasEvent):
            what = "aliases are not allowed"
        elif event.tag is not None:
            what = "tags are not allowed"
        elif self._nodes > MAX_NODES:
            what = f"more than {MAX_NODES:,} nodes; use JSON"
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
                raise yaml.constructor.ConstructorError(None, None, "a key is not text", key.start_mark)
            if key.value in seen:
                what = f"duplicate key {key.value}"
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
    """Line of the innermost existing node on the path; 0 if unknown."""
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
