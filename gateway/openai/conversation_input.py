"""Converts messages to a run: the last user message is the request, the others are the history."""

from typing import TYPE_CHECKING

from gateway.json_text import refuse
from gateway.openai.json_fields import Fields
from gateway.openai.message_parts import MessageContent, MessageParts
from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Role, RunSpec, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_MESSAGES = 2_000

ROLES: "Mapping[str, Role.ValueType]" = {
    "system": ROLE_USER,
    "developer": ROLE_USER,
    "user": ROLE_USER,
    "assistant": ROLE_ASSISTANT,
    "tool": ROLE_ASSISTANT,
    "function": ROLE_ASSISTANT,
}
"""Roles of turns. Instructions become user turns at the start."""

_IGNORED_ITEMS = frozenset({"reasoning", "function_call", "function_call_output", "item_reference"})
"""Items of a response that are not messages."""


async def of_messages(messages: "Sequence[Fields]", parts: MessageParts, where: str = "messages") -> RunSpec:
    """Converts chat messages to a run.

    Args:
        messages: messages, oldest first.
        parts: reads message parts.
        where: field of the messages, for errors.

    Raises:
        InvalidRequest: a message is invalid; the error names it.
    """
    if not messages:
        refuse(where, "is empty", remedy="send at least one user message")
    if len(messages) > MAX_MESSAGES:
        refuse(
            where, f"has more than {MAX_MESSAGES} messages", reason="TOO_LARGE", remedy="send only the last messages"
        )
    last = max((index for index, each in enumerate(messages) if each.text("role") == "user"), default=None)
    if last is None or any(each.text("role") == "assistant" for each in messages[last:]):
        refuse(where, "does not end with a user message", remedy="send the user's request as the last message")
    allowance, spec = parts.allowance(), RunSpec()
    for index, message in enumerate(messages):
        content = await parts.read_content(message.get("content"), message.place("content"), allowance)
        if index == last:
            _set_request(spec, content)
        else:
            _add_turn(spec, _role(message), content)
    return spec


async def of_input(sent: Fields, parts: MessageParts) -> RunSpec:
    """Converts the input of a response to a run: a string, or items of which only messages are used.

    Raises:
        InvalidRequest: an item is invalid; the error names it.
    """
    if isinstance(sent.get("input"), str):
        spec = RunSpec()
        _set_request(spec, await parts.read_content(sent.get("input"), "input", parts.allowance()))
        return spec
    if "input" not in sent:
        refuse("input", "is missing", remedy="send a string, or a list of items")
    items = [item for item in sent.maps("input") if item.text("type", "message") not in _IGNORED_ITEMS]
    for item in items:
        if item.text("type", "message") != "message":
            refuse(item.place("type"), "is not a supported item type", remedy="send messages")
    return await of_messages(items, parts, "input")


def instruct(spec: RunSpec, instructions: str) -> None:
    """Inserts instructions as the first turn."""
    if instructions:
        turns = [Turn(role=ROLE_USER, text=instructions), *spec.history]
        del spec.history[:]
        spec.history.extend(turns)


def _role(message: Fields) -> "Role.ValueType":
    role = message.text("role")
    if role not in ROLES:
        refuse(message.place("role"), f"is {role[:50]!r}", remedy=f"use one of {', '.join(ROLES)}")
    return ROLES[role]


def _set_request(spec: RunSpec, content: MessageContent) -> None:
    spec.request = content.text
    for number, artifact in enumerate(content.files, start=1):
        spec.inputs.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))


def _add_turn(spec: RunSpec, role: "Role.ValueType", content: MessageContent) -> None:
    if not content.text and not content.files:
        return
    turn = spec.history.add(role=role, text=content.text)
    for number, artifact in enumerate(content.files, start=1):
        turn.attachments.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))
