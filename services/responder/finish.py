"""How the house itself ends an answer that somebody else began, and goes on with one that it began itself."""

from services.responder.run_summary import Account
from services.responder.template_answer import UNDONE, composed, unsaid, unsaid_results

INTERRUPTED = "The answer above was interrupted;"
BROKE_OFF = "The model that wrote this broke off here;"
CUT = "The answer was cut here, at the length set for it."
FINISHED = ""
"""What an ending begins with: why there is one."""


def whole(account: Account) -> str:
    """The composed answer."""
    return "\n\n".join(composed(account)) + "\n"


def ending(account: Account, why: str, said: str) -> str:
    """What follows on an answer: why it ends, and what must not be missing from it.

    Args:
        account: what there is to tell.
        why: INTERRUPTED, BROKE_OFF, CUT or FINISHED.
        said: the answer so far.
    """
    untold = [*(unsaid_results(account, said) if why in {INTERRUPTED, BROKE_OFF} else ()), *unsaid(account, said)]
    paragraphs = [_opening(account, why, bool(untold)), *untold] if why else untold
    return "".join(f"\n\n{paragraph}" for paragraph in paragraphs) + "\n" * bool(paragraphs or said[-1:] != "\n")


def continued(account: Account) -> str | None:
    """The rest of what the house itself had begun to say; None if it had not."""
    if not account.sent:
        return None
    if (answer := whole(account)).startswith(account.sent):
        return answer.removeprefix(account.sent)
    for why, mark in ((INTERRUPTED, INTERRUPTED), (BROKE_OFF, BROKE_OFF), (CUT, CUT), (FINISHED, UNDONE)):
        said, found, after = account.sent.partition(f"\n\n{mark}")
        if found and (end := ending(account, why, said)).startswith(found + after):
            return end.removeprefix(found + after)
    return None


def _opening(account: Account, why: str, more: bool) -> str:
    if why == CUT:
        return f"{CUT} All results are kept with the run." if account.tasks else CUT
    if more:
        return f"{why} what it had not told yet follows, put together without it."
    return f"{why} {'ask again for the rest.' if account.only_talk else 'all results are told above.'}"
