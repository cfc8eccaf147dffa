"""Mapping between TaskBench's tool names and the Hugging Face Hub's task names."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from services.planner.embedded.intents import EDITING, intents_of
from services.planner.plan import Draft
from services.planner.task_spec import Catalogue, standard_specs
from tests.eval.lines import Line

HUB_NAMES: Mapping[str, str] = {
    "Token Classification": "token-classification",
    "Translation": "translation",
    "Summarization": "summarization",
    "Question Answering": "question-answering",
    "Conversational": "conversational",
    "Text Generation": "text-generation",
    "Sentence Similarity": "sentence-similarity",
    "Tabular Classification": "table-question-answering",
    "Object Detection": "object-detection",
    "Image Classification": "image-classification",
    "Image-to-Image": "image-to-image",
    "Image-to-Text": "image-to-text",
    "Text-to-Image": "text-to-image",
    "Text-to-Video": "text-to-video",
    "Visual Question Answering": "visual-question-answering",
    "Document Question Answering": "document-question-answering",
    "Image Segmentation": "image-segmentation",
    "Depth Estimation": "depth-estimation",
    "Text-to-Speech": "text-to-speech",
    "Automatic Speech Recognition": "automatic-speech-recognition",
    "Audio-to-Audio": "audio-to-audio",
    "Audio Classification": "audio-classification",
    "Image Editing": "image-to-image",
}
"""Task by tool. TaskBench's "Tabular Classification" answers questions about an image of a table."""

SENSES: Mapping[str, str] = {**HUB_NAMES, "Image Editing": EDITING}
"""The embedded planner's intent by tool."""

_TOOLS: Mapping[str, str] = {
    **{intent: tool for tool, intent in SENSES.items()},
    "mask-generation": "Image Segmentation",
    "image-super-resolution": "Image-to-Image",
    "inpainting": "Image Editing",
    "text2text-generation": "Text Generation",
    "voice-activity-detection": "Audio Classification",
    "text-to-audio": "Text-to-Speech",
}


class Spelling(StrEnum):
    """Vocabulary of task names in a file."""

    TASKBENCH = "taskbench"
    HUB = "hub"


def spelling(lines: Sequence[Line]) -> Spelling:
    """Vocabulary of the lines: the Hub's if a label or an attached file indicates it, else TaskBench's."""
    names = {name for line in lines for answer in line.answers for name in answer.graph.tasks}
    hub = bool(names & standard_specs().keys()) or (not names and any(line.files is not None for line in lines))
    return Spelling.HUB if hub and not names & HUB_NAMES.keys() else Spelling.TASKBENCH


def catalogue(written: Spelling) -> Catalogue:
    """Catalogue for the planner: the tasks of TaskBench's 23 tools, or the whole standard catalogue."""
    specs = standard_specs()
    return {name: specs[name] for name in HUB_NAMES.values()} if written is Spelling.TASKBENCH else specs


def names(draft: Draft, written: Spelling) -> Mapping[int, str]:
    """Task names of a draft by id, in the vocabulary of the file.

    If the Hub has one task for several tools, the planner's intent distinguishes them.
    """
    if written is Spelling.HUB:
        return {task.id: task.task for task in draft.tasks}
    intents = {**intents_of(draft), **draft.intents}
    return {task.id: _TOOLS.get(intents[task.id], task.task) for task in draft.tasks}


def unknown(lines: Sequence[Line], written: Spelling) -> list[str]:
    """Task names in labels that are in neither vocabulary."""
    known = HUB_NAMES.keys() if written is Spelling.TASKBENCH else standard_specs().keys()
    return sorted({name for line in lines for answer in line.answers for name in answer.graph.tasks} - known)
