"""Files of a request: those that its line lists, else those that its text names."""

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
"""Files to add when the planner asks for one."""


def request(line: Line, more: Sequence[Attached] = ()) -> Request:
    """The planner's input, with the files named as the gateway names them.

    Args:
        line: with the request's text.
        more: files to add to those of the line.
    """
    files = (*(named(line.request) if line.files is None else line.files), *more)
    inputs = tuple(Named(f"file{number}", _file(file)) for number, file in enumerate(files, start=1))
    return Request((Turn(by_user=True, text=line.request),), inputs)


def named(text: str) -> list[Attached]:
    """Files that a request's text names; TaskBench has no attachments, real clients send them."""
    names = dict.fromkeys(found.group().replace(" ", "") for found in _NAME.finditer(text))
    return [Attached(name, mimetypes.guess_type(name)[0] or "application/octet-stream") for name in names]


def stand_ins(line: Line, draft: Draft) -> list[Attached]:
    """Stand-in files for a second plan, if the first asks for a file or is empty and the line lists no files.

    The score is about the graph of the request, not about whether the benchmark names the file.
    """
    satisfied = draft.tasks and not any(note.kind is NoteKind.CLARIFY for note in draft.notes)
    if satisfied or line.files is not None:
        return []
    present = {_family(file) for file in named(line.request)}
    return [file for file in STAND_INS if _family(file) not in present]


def _family(file: Attached) -> str:
    return file.media_type.partition("/")[0]


def _file(file: Attached) -> File:
    return File(hashlib.sha256(file.name.encode()).hexdigest(), file.media_type, 1, file.name)
