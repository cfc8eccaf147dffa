"""What a request has to work with, under the names a plan may use: files, earlier artifacts, long pasted text."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from services.planner.plan import Argument, File, Input, Many, Single, Task, Text, Value, modalities
from services.planner.request import Request

LONG = 300
"""Characters from which pasted text gets a name, so that no plan need repeat it."""

GAP = " […] "

FENCE = "```"

_QUOTED = re.compile(r"“([^“”]+)”|«([^«»]+)»|„([^„“”]+)[“”]|\"([^\"]+)\"")
_LEAD = re.compile(r".{0,200}?(?::\s|\n)\s*", re.DOTALL)
_NAME = 120
"""Most characters of a file's own name that are shown."""

_LAST_WORDS = 200
"""Most characters of a line that says what to do with the text above it."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value under its name.

    Args:
        name: by which the plan refers to it.
        argument: what a task is given for it.
        value: what it is.
        age: 0 if it came with this request, else how many turns ago.
        made: it was answered, not sent.
    """

    name: str
    argument: Single
    value: Value
    age: int = 0
    made: bool = False

    def described(self) -> str:
        """One line on it; a file's own name is quoted as JSON, so that it stays on the line."""
        kinds = "/".join(modality.name.lower() for modality in modalities(self.value)) or "file"
        when = "" if not self.age else f", {'made' if self.made else 'sent'} {self.age} turn(s) ago"
        return f"<{self.name}>: {kinds} {_shown(self.value)}{when}"


@dataclass(frozen=True, slots=True)
class Material:
    """All there is to work with.

    Args:
        items: what came with the request first, then the latest.
        before: the request's words up to its pasted text, or all of them.
        block: its pasted text under its name, if it has any.
        after: the words after it.
    """

    items: tuple[Item, ...]
    before: str
    block: Item | None = None
    after: str = ""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Everything in a request and in the turns before it."""
        items = [Item(named.name, Input(named.name), named.value) for named in request.inputs]
        items += _earlier(request, {item.name for item in items})
        if not (found := pasted(request.text)):
            return cls(tuple(items), request.text)
        start, end = found
        text = Text(request.text[start:end])
        block = Item(_free("text", {item.name for item in items}), text, text)
        return cls((*items, block), request.text[:start], block, request.text[end:])

    def words(self, characters: int) -> str:
        """The request in about so many characters: pasted text, else all of it, is shortened in its middle."""
        if not self.block or not isinstance(self.block.value, Text):
            return shortened(self.before, characters)
        room = max(characters - len(self.before) - len(self.after), LONG)
        text = shortened(self.block.value.text, room)
        return shortened(f"{self.before}[<{self.block.name}>: {text}]{self.after}", max(characters, LONG))

    @property
    def listed(self) -> tuple[Item, ...]:
        """What a prompt lists: all but the pasted text, which stands in the request."""
        return tuple(item for item in self.items if item is not self.block)

    def resolved(self, task: Task) -> Task:
        """A task that is given values where it named something that is no input of the run."""
        stands_for = {item.name: item.argument for item in self.items}
        return replace(task, arguments={port: _resolved(one, stands_for) for port, one in task.arguments.items()})


def pasted(words: str) -> tuple[int, int] | None:
    """Where the longest pasted text of a request begins and ends, if one is long."""
    quoted = (match.span(match.lastindex or 0) for match in _QUOTED.finditer(words))
    return _longest(_fenced(words)) or _longest(quoted) or _longest(_unmarked(words))


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is longer."""
    if len(text) <= characters:
        return text
    half = max(characters - len(GAP), 2) // 2
    return f"{text[:half]}{GAP}{text[-half:]}"


def _fenced(words: str) -> Iterator[tuple[int, int]]:
    """What stands between two fences, without the word after the first."""
    end = -len(FENCE)
    while (opening := words.find(FENCE, end + len(FENCE))) >= 0 and (end := words.find(FENCE, opening + 3)) >= 0:
        line = words.find("\n", opening, end)
        yield (line + 1 if line >= 0 else opening + len(FENCE), end)


def _unmarked(words: str) -> Iterator[tuple[int, int]]:
    if lead := _LEAD.match(words):
        yield lead.end(), len(words)
        return
    text = words.rstrip()
    above = text.rfind("\n")
    if above >= 0 and len(text) - above <= _LAST_WORDS:
        yield 0, len(text[:above].rstrip())


def _longest(blocks: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    long = (block for block in blocks if block[1] - block[0] >= LONG)
    return max(long, key=lambda block: block[1] - block[0], default=None)


def _earlier(request: Request, taken: set[str]) -> Iterator[Item]:
    known = {_identity(named.value) for named in request.inputs}
    for age, turn in enumerate(reversed(request.conversation)):
        for named in turn.attachments:
            if _identity(named.value) not in known:
                known.add(_identity(named.value))
                name = _free("earlier", taken)
                taken.add(name)
                yield Item(name, named.value, named.value, max(age, 1), made=not turn.by_user)


def _free(stem: str, taken: set[str]) -> str:
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}{number}") not in taken)


def _identity(value: Value) -> str:
    if isinstance(value, File):
        return value.sha256
    return value.text if isinstance(value, Text) else value.json


def _shown(value: Value) -> str:
    if isinstance(value, File):
        return f"{json.dumps(shortened(value.name, _NAME), ensure_ascii=False)} ({value.media_type})"
    text = value.text if isinstance(value, Text) else value.json
    return json.dumps(shortened(text, 80), ensure_ascii=False)


def _resolved(argument: Argument, stands_for: Mapping[str, Single]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(_resolved_single(item, stands_for) for item in argument.items))
    return _resolved_single(argument, stands_for)


def _resolved_single(argument: Single, stands_for: Mapping[str, Single]) -> Single:
    return stands_for.get(argument.name, argument) if isinstance(argument, Input) else argument
