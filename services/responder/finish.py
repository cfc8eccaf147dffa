"""Ends an answer of which only a part was sent, and adds the failures that it does not mention."""

from services.responder.run_summary import RunSummary
from services.responder.template_answer import FAILURES_HEADING, compose, unmentioned_failures, unmentioned_results

INTERRUPTED = "The answer above was interrupted;"
STOPPED_EARLY = "The model stopped here before its answer was complete;"
LENGTH_LIMIT = "The answer was truncated here, at its length limit."
FINISHED = ""
"""Reasons of an ending, which begin it."""


def render_answer(summary: RunSummary) -> str:
    """Returns the complete template answer."""
    return "\n\n".join(compose(summary)) + "\n"


def ending(summary: RunSummary, reason: str, text: str) -> str:
    """Returns what follows the text sent so far: the reason, then the results and failures it does not mention.

    Args:
        summary: results of the run.
        reason: INTERRUPTED, STOPPED_EARLY, LENGTH_LIMIT or FINISHED.
        text: the answer so far.
    """
    results = unmentioned_results(summary, text) if reason in {INTERRUPTED, STOPPED_EARLY} else ()
    unmentioned = [*results, *unmentioned_failures(summary, text)]
    paragraphs = [_reason_sentence(summary, reason, bool(unmentioned)), *unmentioned] if reason else unmentioned
    return "".join(f"\n\n{paragraph}" for paragraph in paragraphs) + "\n" * bool(paragraphs or text[-1:] != "\n")


def rest_of_own_answer(summary: RunSummary) -> str | None:
    """Returns the rest of a template answer or ending that was sent in part; None if an LLM wrote what was sent."""
    if not summary.sent:
        return None
    if (answer := render_answer(summary)).startswith(summary.sent):
        return answer.removeprefix(summary.sent)
    openings = ((INTERRUPTED, INTERRUPTED), (STOPPED_EARLY, STOPPED_EARLY), (LENGTH_LIMIT, LENGTH_LIMIT))
    for reason, mark in (*openings, (FINISHED, FAILURES_HEADING)):
        text, found, after = summary.sent.partition(f"\n\n{mark}")
        if found and (end := ending(summary, reason, text)).startswith(found + after):
            return end.removeprefix(found + after)
    return None


def _reason_sentence(summary: RunSummary, reason: str, has_more: bool) -> str:
    if reason == LENGTH_LIMIT:
        return f"{LENGTH_LIMIT} All results are stored with the run." if summary.tasks else LENGTH_LIMIT
    if has_more:
        return f"{reason} the remaining results follow, composed without it."
    return f"{reason} {'ask again for the rest.' if summary.is_chat_only else 'all results are given above.'}"
