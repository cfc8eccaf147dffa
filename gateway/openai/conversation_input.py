"""Messages as a run takes them: the last one is the request, those before it the history."""

from typing import TYPE_CHECKING

from gateway.json_text import refuse
from gateway.openai.json_fields import Fields
from gateway.openai.message_parts import Parts, Said
from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Role, RunSpec, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_MESSAGES = 2_000

ROLES: "Mapping[str, Role.ValueType]" = {
    "system": ROLE_USER,
    "developer": ROLE_USER,
    "user": ROLE_USER,
    "assistant": ROLE_ASSISTANT,
    "tool": ROLE_ASSISTANT,
    "function": ROLE_ASSISTANT,
}
"""Who speaks. Instructions are the user's words, said first."""

_SILENT = frozenset({"reasoning", "function_call", "function_call_output", "item_reference"})
"""Items of a response that are no messages."""


async def of_messages(messages: "Sequence[Fields]", parts: Parts, where: str = "messages") -> RunSpec:
    """A run for chat messages.

    Args:
        messages: the oldest first.
        parts: reads what they are made of.
        where: they stand in the request.

    Raises:
        InvalidRequest: naming the message and what is wrong with it.
    """
    if not messages:
        refuse(where, "is empty", remedy="send at least one message of the user's")
    if len(messages) > MOST_MESSAGES:
        refuse(where, f"has more than {MOST_MESSAGES} messages", reason="TOO_LARGE", remedy="send the last ones")
    last = max((at for at, each in enumerate(messages) if each.text("role") == "user"), default=None)
    if last is None or any(each.text("role") == "assistant" for each in messages[last:]):
        refuse(where, "does not end with a message of the user's", remedy="send the user's request last")
    allowance, spec = parts.allowance(), RunSpec()
    for at, message in enumerate(messages):
        said = await parts.said(message.get("content"), message.place("content"), allowance)
        if at == last:
            _ask(spec, said)
        else:
            _remember(spec, _role(message), said)
    return spec


async def of_input(sent: Fields, parts: Parts) -> RunSpec:
    """A run for the input of a response: a string, or items of which the messages count.

    Raises:
        InvalidRequest: naming the item and what is wrong with it.
    """
    if isinstance(sent.get("input"), str):
        spec = RunSpec()
        _ask(spec, await parts.said(sent.get("input"), "input", parts.allowance()))
        return spec
    if "input" not in sent:
        refuse("input", "is missing", remedy="send a string, or a list of items")
    items = [item for item in sent.maps("input") if item.text("type", "message") not in _SILENT]
    for item in items:
        if item.text("type", "message") != "message":
            refuse(item.place("type"), "is not an item taken here", remedy="send messages")
    return await of_messages(items, parts, "input")


def instruct(spec: RunSpec, instructions: str) -> None:
    """Puts instructions before all else that was said."""
    if instructions:
        turns = [Turn(role=ROLE_USER, text=instructions), *spec.history]
        del spec.history[:]
        spec.history.extend(turns)


def _role(message: Fields) -> "Role.ValueType":
    role = message.text("role")
    if role not in ROLES:
        refuse(message.place("role"), f"is {role[:50]!r}", remedy=f"use one of {', '.join(ROLES)}")
    return ROLES[role]


def _ask(spec: RunSpec, said: Said) -> None:
    spec.request = said.text
    for number, artifact in enumerate(said.files, start=1):
        spec.inputs.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))


def _remember(spec: RunSpec, role: "Role.ValueType", said: Said) -> None:
    if not said.text and not said.files:
        return
    turn = spec.history.add(role=role, text=said.text)
    for number, artifact in enumerate(said.files, start=1):
        turn.attachments.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))
