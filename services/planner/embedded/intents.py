"""Intents: kinds of task, some divided more finely or more coarsely than on the Hub."""

import re
from collections.abc import Mapping

from services.planner.plan import Draft, Task, Text

EDITING = "image-editing"
"""A picture is changed as an instruction says; without one it is only turned into another."""

TABLES = "table-question-answering"

_COARSER: Mapping[str, str] = {
    "zero-shot-image-classification": "image-classification",
    "zero-shot-object-detection": "object-detection",
    "zero-shot-audio-classification": "audio-classification",
    "zero-shot-classification": "text-classification",
}
"""Tasks that take named classes, and the intent of their kind; rules find whether classes are named."""

_CHANGES = re.compile(
    r"\b(?:edit|modif|chang|remov|replac|add|brigh|colou?r|adjust|make|alter|turn|crop|blur|darken)", re.IGNORECASE
)


def intents_of(draft: Draft) -> Mapping[int, str]:
    """The intent of each task, by id; several changes of pictures have the same intent."""
    intents = {task.id: intent(task.task, instruction=_instruction(task)) for task in draft.tasks}
    if EDITING in intents.values():
        intents = {task_id: EDITING if name == "image-to-image" else name for task_id, name in intents.items()}
    return intents


def intent(task: str, *, instruction: str = "") -> str:
    """The intent of a kind of task."""
    if task == "image-to-image" and _CHANGES.search(instruction):
        return EDITING
    return _COARSER.get(task, task)


def task_of(name: str, *, picture: bool = False) -> str:
    """The usual task for an intent; a table in a picture is read like any other page."""
    if name == EDITING:
        return "image-to-image"
    return "document-question-answering" if name == TABLES and picture else name


def _instruction(task: Task) -> str:
    given = task.arguments.get("instruction")
    return given.text if isinstance(given, Text) else ""
