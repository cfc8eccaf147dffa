"""Inputs that a plan may use, by name: files, earlier artifacts and long pasted text."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from services.planner.plan import Argument, File, Input, Many, Single, Task, Text, Value, modalities
from services.planner.request import Request

LONG = 300
"""Characters from which pasted text becomes a named input, so that plans need not repeat it."""

GAP = " […] "

FENCE = "```"

_QUOTED = re.compile(r"“([^“”]+)”|«([^«»]+)»|„([^„“”]+)[“”]|\"([^\"]+)\"")
_LEAD = re.compile(r".{0,200}?(?::\s|\n)\s*", re.DOTALL)
_NAME = 120
"""Limit of characters shown of a file name."""

_LAST_LINE_CHARACTERS = 200
"""Limit of characters of a last line that states what to do with the text above it."""


@dataclass(frozen=True, slots=True)
class Item:
    """An input by name.

    Args:
        name: in the plan.
        argument: the argument it stands for.
        value: its value.
        age: 0 if sent with this request, else how many turns ago.
        made: created by an earlier answer instead of sent by the user.
    """

    name: str
    argument: Single
    value: Value
    age: int = 0
    is_generated: bool = False

    def described(self) -> str:
        """Describes the input on one line; the file name is JSON-quoted, so that it stays on the line."""
        kinds = "/".join(modality.name.lower() for modality in modalities(self.value)) or "file"
        when = "" if not self.age else f", {'made' if self.is_generated else 'sent'} {self.age} turn(s) ago"
        return f"<{self.name}>: {kinds} {_describe_value(self.value)}{when}"


@dataclass(frozen=True, slots=True)
class Material:
    """All inputs of a request, and its text.

    Args:
        items: inputs of the request, then earlier ones, newest first.
        before: text of the request before the pasted text, or all of it.
        block: the pasted text, if any.
        after: text after the pasted text.
    """

    items: tuple[Item, ...]
    before: str
    block: Item | None = None
    after: str = ""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Collects the inputs of a request and of the turns before it."""
        items = [Item(named.name, Input(named.name), named.value) for named in request.inputs]
        items += _earlier(request, {item.name for item in items})
        if not (found := find_pasted(request.text)):
            return cls(tuple(items), request.text)
        start, end = found
        text = Text(request.text[start:end])
        block = Item(_unused_name("text", {item.name for item in items}), text, text)
        return cls((*items, block), request.text[:start], block, request.text[end:])

    def request_text(self, characters: int) -> str:
        """Returns the request in about so many characters; pasted text is shortened first, in its middle."""
        if not self.block or not isinstance(self.block.value, Text):
            return shortened(self.before, characters)
        available = max(characters - len(self.before) - len(self.after), LONG)
        text = shortened(self.block.value.text, available)
        return shortened(f"{self.before}[<{self.block.name}>: {text}]{self.after}", max(characters, LONG))

    @property
    def listed(self) -> tuple[Item, ...]:
        """Inputs that the prompt lists: all except the pasted text, which is part of the request."""
        return tuple(item for item in self.items if item is not self.block)

    def resolved(self, task: Task) -> Task:
        """Replaces names in a task's arguments by the arguments that they stand for."""
        arguments_by_name = {item.name: item.argument for item in self.items}
        return replace(
            task, arguments={port: _resolved(argument, arguments_by_name) for port, argument in task.arguments.items()}
        )


def find_pasted(text: str) -> tuple[int, int] | None:
    """Returns start and end of the longest pasted text, if it is long enough."""
    quoted = (match.span(match.lastindex or 0) for match in _QUOTED.finditer(text))
    return _longest(_fenced(text)) or _longest(quoted) or _longest(_unmarked(text))


def shortened(text: str, characters: int) -> str:
    """Shortens a text to its start and end."""
    if len(text) <= characters:
        return text
    half = max(characters - len(GAP), 2) // 2
    return f"{text[:half]}{GAP}{text[-half:]}"


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    """Yields the text between fences, without the language after the opening fence."""
    end = -len(FENCE)
    while (opening := text.find(FENCE, end + len(FENCE))) >= 0 and (end := text.find(FENCE, opening + 3)) >= 0:
        line = text.find("\n", opening, end)
        yield (line + 1 if line >= 0 else opening + len(FENCE), end)


def _unmarked(request: str) -> Iterator[tuple[int, int]]:
    if lead := _LEAD.match(request):
        yield lead.end(), len(request)
        return
    text = request.rstrip()
    above = text.rfind("\n")
    if above >= 0 and len(text) - above <= _LAST_LINE_CHARACTERS:
        yield 0, len(text[:above].rstrip())


def _longest(blocks: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    long = (block for block in blocks if block[1] - block[0] >= LONG)
    return max(long, key=lambda block: block[1] - block[0], default=None)


def _earlier(request: Request, used_names: set[str]) -> Iterator[Item]:
    known = {_identity(named.value) for named in request.inputs}
    for age, turn in enumerate(reversed(request.conversation)):
        for named in turn.attachments:
            if _identity(named.value) not in known:
                known.add(_identity(named.value))
                name = _unused_name("earlier", used_names)
                used_names.add(name)
                yield Item(name, named.value, named.value, max(age, 1), is_generated=not turn.by_user)


def _unused_name(stem: str, used_names: set[str]) -> str:
    return next(name for number in range(1, len(used_names) + 2) if (name := f"{stem}{number}") not in used_names)


def _identity(value: Value) -> str:
    if isinstance(value, File):
        return value.sha256
    return value.text if isinstance(value, Text) else value.json


def _describe_value(value: Value) -> str:
    if isinstance(value, File):
        return f"{json.dumps(shortened(value.name, _NAME), ensure_ascii=False)} ({value.media_type})"
    text = value.text if isinstance(value, Text) else value.json
    return json.dumps(shortened(text, 80), ensure_ascii=False)


def _resolved(argument: Argument, arguments_by_name: Mapping[str, Single]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(_resolved_single(item, arguments_by_name) for item in argument.items))
    return _resolved_single(argument, arguments_by_name)


def _resolved_single(argument: Single, arguments_by_name: Mapping[str, Single]) -> Single:
    return arguments_by_name.get(argument.name, argument) if isinstance(argument, Input) else argument
