"""Composes an answer without an LLM: the results, how they were made, then what could not be done."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from services.responder.markdown import describe_file, inline, inline_full, join_list
from services.responder.run_summary import NoteKind, RunSummary, State, Task
from services.responder.task_phrases import GUESS, describe_result, has_answer, is_rough_transcript

_WHAT_IT_DOES = (
    " It does things with texts, pictures, recordings and documents: send a file or a text and say what to do, such as"
    " “read the text in this image aloud”, “summarize report.pdf” or “how many people are in this photo?”."
    " `hugginggpt tasks` lists all it can do now."
)
_ROUGH = "The transcript is rough: this may be wrong."
_CHAT_FAILED = (
    "The chat model gave no answer; ask again later, or see `hugginggpt doctor` for what is wrong"
    f" with it.{_WHAT_IT_DOES}"
)
_WORD = re.compile(r"[^\W_]+")
FAILURES_HEADING = "**What could not be done**"
_NO_RESULT = "Nothing came of this request."
_NOTHING_DONE = "None of this could be done."


@dataclass(frozen=True, slots=True)
class UnfinishedItem:
    """A part of the request that was not done, or a required notice.

    Args:
        sentence: about it.
        evidence: text whose presence in an answer shows that the answer mentions it.
    """

    sentence: str
    evidence: str


def render_answer(summary: RunSummary) -> str:
    """Returns the complete answer as Markdown."""
    return "\n\n".join(compose(summary)) + "\n"


def compose(summary: RunSummary) -> list[str]:
    """Composes the answer as paragraphs; equal summaries give equal answers."""
    results, chat = _describe_results(summary.tasks, _reported_tasks(summary.tasks)), list(_chat_unavailable(summary))
    missing = [item.sentence for item in unfinished_items(summary)]
    if not summary.tasks:
        return [*chat, *missing] or [_NO_RESULT]
    if not results:
        results = [_NOTHING_DONE]
    elif missing:
        results.append("Not everything could be done; see the end.")
    return [*results, *chat, *_unused_files(summary), *_process(summary.tasks), *_failure_list(missing)]


def required_statements(summary: RunSummary) -> list[str]:
    """Returns all notices that an answer must contain."""
    return [*_unused_files(summary), *(item.sentence for item in unfinished_items(summary))]


def unmentioned_failures(summary: RunSummary, text: str) -> list[str]:
    """Returns paragraphs on failures and notices that the text does not mention."""
    normalized = _normalized(text)
    unmentioned = [sentence for sentence in _unused_files(summary) if _normalized(sentence) not in normalized]
    items = [item.sentence for item in unfinished_items(summary) if _normalized(item.evidence) not in normalized]
    return [*unmentioned, *_failure_list(items)]


def unmentioned_results(summary: RunSummary, text: str) -> list[str]:
    """Returns paragraphs on results that the text does not mention."""
    normalized = _normalized(text)
    reported = [task for task in _reported_tasks(summary.tasks) if not _is_mentioned(task, normalized)]
    return _describe_results(summary.tasks, reported)


def unfinished_items(summary: RunSummary) -> Iterator[UnfinishedItem]:
    """Yields all parts of the request that were not done, and why."""
    for task in summary.tasks:
        if not task.state.is_successful:
            sentence = _failure_sentence(task, summary.tasks)
            why = task.failure.message if task.failure and task.state is not State.SKIPPED else ""
            yield UnfinishedItem(sentence, why or sentence.partition(": ")[2] or sentence)
    for note in summary.notes:
        if note.kind is NoteKind.MISSING:
            yield UnfinishedItem(inline_full(note.text), note.text)
    if summary.failure and not _is_failure_covered(summary):
        sentence = f"{_sentence(summary.failure.message)} {_sentence(summary.failure.remedy)}".strip()
        yield UnfinishedItem(sentence, summary.failure.message)


def _failure_list(lines: Sequence[str]) -> list[str]:
    return [FAILURES_HEADING, "\n".join(f"- {sentence}" for sentence in lines)] if lines else []


def _normalized(text: str) -> str:
    """Returns the words of a text in lower case, each surrounded by spaces."""
    return f" {' '.join(_WORD.findall(text)).casefold()} "


def _is_mentioned(task: Task, normalized: str) -> bool:
    """Whether a text names all files of a task and contains its text; structured data never counts as mentioned."""
    texts = [_normalized(artifact.name) for artifact in task.artifacts]
    if task.text and len(task.text) <= 2 * len(normalized):  # longer texts are not compared
        texts.append(_normalized(task.text))
    elif task.text:
        return False
    return bool(texts) and all(item in normalized for item in texts)


# ---------------------------------------------------------------- results


def _reported_tasks(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.state.is_successful and not _is_intermediate(task, tasks)]


def _is_intermediate(task: Task, tasks: Sequence[Task]) -> bool:
    """Whether another task with the same part of the request turned the output of this task into text."""
    users = [item for item in tasks if task.id in item.needs and item.source == task.source]
    return any(item.state.is_successful and item.text for item in users)


def _describe_results(tasks: Sequence[Task], reported: Sequence[Task]) -> list[str]:
    """Describes results; if the tasks used several files, each description names those that it comes from."""
    files = _source_files(tasks)
    several = len({name for names in files.values() for name in names}) > 1
    unreported = {task.id for task in tasks if is_rough_transcript(task)} - {task.id for task in reported}
    return [
        _with_files(_with_doubt(describe_result(task), task, unreported), files[task.id] if several else ())
        for task in reported
    ]


def _with_doubt(description: str, task: Task, rough: AbstractSet[int]) -> str:
    """A result with a warning if it comes from a rough transcript that the answer does not show."""
    is_doubtful = bool(task.needs & rough) and has_answer(task) and GUESS not in description
    return f"{description} {_ROUGH}" if is_doubtful else description


def _source_files(tasks: Sequence[Task]) -> dict[int, tuple[str, ...]]:
    """Names of the files that each task used, itself or through the tasks before it."""
    files: dict[int, tuple[str, ...]] = {}
    for task in tasks:
        inherited = (name for need in sorted(task.needs) for name in files.get(need, ()))
        files[task.id] = tuple(dict.fromkeys((*task.given, *inherited)))
    return files


def _with_files(description: str, names: Sequence[str]) -> str:
    missing = [inline(name) for name in names if inline(name) not in description]
    return f"{join_list(missing)}: {description}" if missing else description


# ---------------------------------------------------------------- process


def _process(tasks: Sequence[Task]) -> Iterator[str]:
    done = [task for task in tasks if task.state.is_successful]
    if done:
        yield "**How it was done**"
        is_consecutive = all(task.id == done[0].id + index for index, task in enumerate(done))
        yield "\n".join(_process_line(task, is_consecutive=is_consecutive) for task in done)


def _process_line(task: Task, *, is_consecutive: bool) -> str:
    by = f"{inline(task.model)} ({inline(task.expert)})" if task.expert else inline(task.model)
    how = [by] if by else []
    if task.state is State.REUSED:
        how.append("result of an earlier run")
    elif task.seconds is not None:
        how.append(_seconds(task.seconds))
    files = f" → {', '.join(describe_file(artifact) for artifact in task.artifacts)}" if task.artifacts else ""
    # Markdown renumbers an ordered list from its first number, so that a gap needs bullets.
    number = f"{task.id}." if is_consecutive else f"- {task.id}\\."
    return f"{number} {inline(task.name)}: {', '.join(how) or 'done'}{files}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


# ---------------------------------------------------------------- failures and notices


def _chat_unavailable(summary: RunSummary) -> Iterator[str]:
    texts = [inline_full(note.text) for note in summary.notes if note.kind is NoteKind.CHAT]
    yield from [_CHAT_FAILED] if texts and summary.llm else texts


def _unused_files(summary: RunSummary) -> Iterator[str]:
    return (inline_full(note.text) for note in summary.notes if note.kind is NoteKind.UNUSED_FILE)


def _is_failure_covered(summary: RunSummary) -> bool:
    failure = summary.failure
    return any(task.failure == failure for task in summary.tasks) or any(
        failure is not None and note.text in failure.message for note in summary.notes if note.kind is NoteKind.MISSING
    )


def _failure_sentence(task: Task, tasks: Sequence[Task]) -> str:
    asked = f" (“{inline(task.source)}”)" if task.source else ""
    what = f"{inline(task.name)}{asked}"
    failed = [
        f"{other.name} (task {other.id})" for other in tasks if other.id in task.needs and not other.state.is_successful
    ]
    if task.state is State.SKIPPED and failed:
        return f"{what} was not started: it needs the result of {' and '.join(failed)}."
    states = {State.FAILED: "failed", State.SKIPPED: "was not started", State.CANCELLED: "was cancelled"}
    state = states.get(task.state, "did not come to an end")
    if task.failure is None:
        return f"{what} {state}."
    remedy = f" Remedy: {_sentence(task.failure.remedy)}" if task.failure.remedy else ""
    return f"{what} {state}: {_sentence(task.failure.message)}{remedy}"


def _sentence(text: str) -> str:
    text = inline_full(text)
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."
