"""The answer without an LLM: what was asked for first, then how it was done, then what could not be done."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.responder.escape import named, phrase, whole
from services.responder.run_summary import Account, RemarkKind, State, Task
from services.responder.task_phrases import told

CONTROLLER = "composed"

_WHAT_IT_DOES = (
    " It does things with texts, pictures, recordings and documents: send a file or a text and say what to do, such as"
    " “read the text in this image aloud”, “summarize report.pdf” or “how many people are in this photo?”."
    " `hugginggpt tasks` lists all it can do now."
)
_WITHOUT_CHAT = (
    f"This house has no chat model, so it cannot hold a conversation.{_WHAT_IT_DOES}"
    " To talk with a model, add an expert that offers conversational: `hugginggpt experts add ADDRESS`."
)
_CHAT_FAILED = (
    "The chat model this house talks with gave no answer; ask again later, or see `hugginggpt doctor` for what is wrong"
    f" with it.{_WHAT_IT_DOES}"
)
_WORD = re.compile(r"[^\W_]+")
UNDONE = "**What could not be done**"
_NOTHING = "Nothing came of this request."
_NONE = "None of this could be done."


@dataclass(frozen=True, slots=True)
class Undone:
    """Something that is missing, or must still be said.

    Args:
        line: the sentence about it.
        proof: words that stand in every text that tells of it.
    """

    line: str
    proof: str


def composed(account: Account) -> list[str]:
    """The answer, paragraph by paragraph; the same account gives the same answer."""
    results, chat = [told(task) for task in _tellable(account.tasks)], list(_chat(account))
    missing = [each.line for each in undone(account)]
    if not account.tasks:
        return [*chat, *missing] or [_NOTHING]
    if not results:
        results = [_NONE]
    elif missing:
        results.append("Not everything could be done; see the end.")
    return [*results, *chat, *_left_out(account), *_process(account.tasks), *_listed(missing)]


def to_be_said(account: Account) -> list[str]:
    """All that an answer must not be silent about."""
    return [*_left_out(account), *(each.line for each in undone(account))]


def unsaid(account: Account, text: str) -> list[str]:
    """Paragraphs on what is missing and not told in the text."""
    words = _plain(text)
    left_out = [line for line in _left_out(account) if _plain(line) not in words]
    return [*left_out, *_listed([each.line for each in undone(account) if _plain(each.proof) not in words])]


def unsaid_results(account: Account, text: str) -> list[str]:
    """Paragraphs on results that are not told in the text."""
    words = _plain(text)
    return [told(task) for task in _tellable(account.tasks) if not _said(task, words)]


def undone(account: Account) -> Iterator[Undone]:
    """All that is missing and why."""
    for task in account.tasks:
        if not task.state.good:
            line = _undone(task, account.tasks)
            why = task.trouble.message if task.trouble and task.state is not State.SKIPPED else ""
            yield Undone(line, why or line.partition(": ")[2] or line)
    for remark in account.remarks:
        if remark.kind is RemarkKind.MISSING:
            yield Undone(whole(remark.text), remark.text)
    if account.trouble and not _already_told(account):
        line = f"{_sentence(account.trouble.message)} {_sentence(account.trouble.remedy)}".strip()
        yield Undone(line, account.trouble.message)


def _listed(lines: Sequence[str]) -> list[str]:
    return [UNDONE, "\n".join(f"- {line}" for line in lines)] if lines else []


def _plain(text: str) -> str:
    """The words of a text, whatever stands between them; a space is around each."""
    return f" {' '.join(_WORD.findall(text)).casefold()} "


def _said(task: Task, words: str) -> bool:
    """Whether a text names all files of a task and holds what it has in words; data alone never counts as told."""
    tellable = [_plain(artifact.name) for artifact in task.artifacts]
    if task.text and len(task.text) <= 2 * len(words):  # what is longer is not counted through
        tellable.append(_plain(task.text))
    elif task.text:
        return False
    return bool(tellable) and all(each in words for each in tellable)


# ---------------------------------------------------------------- results


def _tellable(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.state.good and not _on_the_way(task, tasks)]


def _on_the_way(task: Task, tasks: Sequence[Task]) -> bool:
    """Whether a task only prepared, for the same words of the request, what another has put into words."""
    return any(
        task.id in other.needs and other.source == task.source and other.state.good and other.text for other in tasks
    )


# ---------------------------------------------------------------- process


def _process(tasks: Sequence[Task]) -> Iterator[str]:
    done = [task for task in tasks if task.state.good]
    if done:
        yield "**How it was done**"
        yield "\n".join(_line(task) for task in done)


def _line(task: Task) -> str:
    by = f"{phrase(task.model)} ({phrase(task.expert)})" if task.expert else phrase(task.model)
    how = [by] if by else []
    if task.state is State.REUSED:
        how.append("result of an earlier run")
    elif task.seconds is not None:
        how.append(_seconds(task.seconds))
    files = f" → {', '.join(named(artifact) for artifact in task.artifacts)}" if task.artifacts else ""
    return f"{task.id}. {phrase(task.name)}: {', '.join(how) or 'done'}{files}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


# ---------------------------------------------------------------- what is missing


def _chat(account: Account) -> Iterator[str]:
    if any(remark.kind is RemarkKind.CHAT for remark in account.remarks):
        yield _CHAT_FAILED if account.llm else _WITHOUT_CHAT


def _left_out(account: Account) -> Iterator[str]:
    return (whole(remark.text) for remark in account.remarks if remark.kind is RemarkKind.LEFT_OUT)


def _already_told(account: Account) -> bool:
    trouble = account.trouble
    return any(task.trouble == trouble for task in account.tasks) or any(
        trouble is not None and remark.text in trouble.message
        for remark in account.remarks
        if remark.kind is RemarkKind.MISSING
    )


def _undone(task: Task, tasks: Sequence[Task]) -> str:
    asked = f" (“{phrase(task.source)}”)" if task.source else ""
    what = f"{phrase(task.name)}{asked}"
    broken = [f"{other.name} (task {other.id})" for other in tasks if other.id in task.needs and not other.state.good]
    if task.state is State.SKIPPED and broken:
        return f"{what} was not started: it needs the result of {' and '.join(broken)}."
    states = {State.FAILED: "failed", State.SKIPPED: "was not started", State.CANCELLED: "was cancelled"}
    state = states.get(task.state, "did not come to an end")
    if task.trouble is None:
        return f"{what} {state}."
    remedy = f" What would help: {_sentence(task.trouble.remedy)}" if task.trouble.remedy else ""
    return f"{what} {state}: {_sentence(task.trouble.message)}{remedy}"


def _sentence(words: str) -> str:
    words = whole(words)
    return words if not words or words.endswith((".", "!", "?", "…")) else f"{words}."
