"""The format a plan is asked for in, and how far from it a model may stray.

The model writes an array of tasks; remarks may stand among them:

    [{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file1>"}, "source": "read the sign"},
     {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<text>-0", "speed": 1.5}, "source": "say it"},
     {"note": "unmapped", "text": "Nobody here can send mail.", "source": "and mail it"}]

- `task` is a name of the catalogue, `id` any whole number (new tasks are numbered from 0, or after those that stand
  already), `dep` the ids whose outputs it needs or [-1], `source` the words of the request it came from.
- `args` names ports and parameters. A value is a literal; `<file1>`, the name of an input (its file name is as good);
  or `<resource>-<id>`, an output of task id: resource is the output's name or its modality (text, image, audio, video).
  A list of values for a port that takes one makes one task each.
- A note is `unmapped` (no task of the catalogue does this), `clarify` (a question that must be answered first) or
  `chat` (nothing to run, just an answer).

Also understood: `<GENERATED>-0`, `<GENERATED-0>`, `{{task_0.text}}` and their like, ids as text, missing ids or deps.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a task as the model wrote it, numbered as the model does; no id means the plan itself."""

    wire_id: int | None
    task: str
    message: str
    remedy: str
    source: str = ""

    def __str__(self) -> str:
        where = f"task {self.wire_id} ({self.task}): " if self.wire_id is not None else ""
        return f"{where}{self.message} ({self.remedy})"
