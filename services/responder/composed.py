"""The answer without an LLM: what was asked for first, then how it was done, then what could not be done."""

from collections.abc import Iterator, Sequence

from services.responder.account import Account, RemarkKind, State, Task
from services.responder.phrases import told
from services.responder.telling import named, phrase, whole

CONTROLLER = "composed"

_WITHOUT_CHAT = (
    "This house has no chat model, so it cannot hold a conversation. It does things with texts, pictures, recordings"
    " and documents: send a file or a text and say what to do, such as “read the text in this image aloud”,"
    " “summarize report.pdf” or “how many people are in this photo?”. `hugginggpt tasks` lists all it can do now."
    " To talk with a model, add an expert that offers conversational: `hugginggpt experts add ADDRESS`."
)
_NOTHING = "Nothing came of this request."
_NONE = "None of this could be done."


def composed(account: Account) -> list[str]:
    """The answer, paragraph by paragraph; the same account gives the same answer."""
    results, chat, missing = list(_results(account.tasks)), list(_chat(account)), list(_missing(account))
    if not account.tasks:
        return [*chat, *missing] or [_NOTHING]
    if not results:
        results = [_NONE]
    elif missing:
        results.append("Not everything could be done; see the end.")
    undone = ["**What could not be done**", "\n".join(f"- {line}" for line in missing)] if missing else []
    return [*results, *chat, *_left_out(account), *_process(account.tasks), *undone]


def briefly(account: Account) -> list[str]:
    """What to add to an answer by another hand that was cut off."""
    results, missing = list(_results(account.tasks)), list(_missing(account))
    closing = ["What could not be done:", "\n".join(f"- {line}" for line in missing)] if missing else []
    return ["The answer above was interrupted; in short:", *results, *closing]


# ---------------------------------------------------------------- results


def _results(tasks: Sequence[Task]) -> Iterator[str]:
    for task in tasks:
        if task.state.good and not _on_the_way(task, tasks):
            yield told(task)


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
        yield _WITHOUT_CHAT


def _left_out(account: Account) -> Iterator[str]:
    return (whole(remark.text) for remark in account.remarks if remark.kind is RemarkKind.LEFT_OUT)


def _missing(account: Account) -> Iterator[str]:
    for task in account.tasks:
        if not task.state.good:
            yield _undone(task, account.tasks)
    for remark in account.remarks:
        if remark.kind is RemarkKind.MISSING:
            yield whole(remark.text)
    if account.trouble and not _already_told(account):
        yield f"{_sentence(account.trouble.message)} {_sentence(account.trouble.remedy)}".strip()


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
