"""The files of a request: as its line lists them, else as its words name them."""

import hashlib
import mimetypes
import re
from collections.abc import Sequence

from services.planner.plan import Draft, File, NoteKind
from services.planner.request import Named, Request, Turn
from tests.eval.lines import Attached, Line

_NAME = re.compile(
    r"(?<![\w.-])[\w-]+\. ?(?:jpe?g|png|gif|bmp|webp|tiff?|pdf|wav|mp3|flac|ogg|m4a|mp4|avi|mov|mkv|webm|txt|csv)\b",
    re.IGNORECASE,
)

STAND_INS = (
    Attached("picture.png", "image/png"),
    Attached("recording.wav", "audio/wav"),
    Attached("clip.mp4", "video/mp4"),
)
"""What somebody would send who is asked for a file."""


def request(line: Line, more: Sequence[Attached] = ()) -> Request:
    """What the planner gets, the files under the names that the gateway gives them."""
    files = (*(named(line.request) if line.files is None else line.files), *more)
    inputs = tuple(Named(f"file{number}", _file(file)) for number, file in enumerate(files, start=1))
    return Request((Turn(by_user=True, text=line.request),), inputs)


def named(words: str) -> list[Attached]:
    """The files that a request only names: the benchmark sends none, people do."""
    names = dict.fromkeys(found.group().replace(" ", "") for found in _NAME.finditer(words))
    return [Attached(name, mimetypes.guess_type(name)[0] or "application/octet-stream") for name in names]


def asked_for(line: Line, draft: Draft) -> list[Attached]:
    """Stand-ins to plan once more with: the plan asks back or is empty, and the line does not say what was sent.

    What is scored is the graph a request calls for, not whether the benchmark thought of naming the file.
    """
    satisfied = draft.tasks and not any(note.kind is NoteKind.CLARIFY for note in draft.notes)
    if satisfied or line.files is not None:
        return []
    there = {_family(file) for file in named(line.request)}
    return [file for file in STAND_INS if _family(file) not in there]


def _family(file: Attached) -> str:
    return file.media_type.partition("/")[0]


def _file(file: Attached) -> File:
    return File(hashlib.sha256(file.name.encode()).hexdigest(), file.media_type, 1, file.name)
