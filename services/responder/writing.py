"""The answer by an LLM, shown as it is written."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.llm.client import LLM, Unusable, Usage
from services.responder.account import Account
from services.responder.asking import question
from services.responder.checking import Checked
from services.responder.going_on import GoingOn

CONTROLLER = "llm"
EMPTY = "the model gave an empty answer"

Show = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class Written:
    """What a model wrote.

    Args:
        text: what was shown of it.
        cut: it ended because it was long enough.
        broken: why it ended too early, or never began.
        usage: what it took.
    """

    text: str = ""
    cut: bool = False
    broken: str = ""
    usage: Usage = field(default_factory=Usage)


class Writer:
    """Writes answers with an LLM.

    Args:
        llm: whom to ask.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.model = llm.model

    async def write(self, account: Account, show: Show, seconds: float | None) -> Written:
        """Shows the answer, or the rest of one that has begun, as it is written.

        Args:
            account: what there is to tell.
            show: told of every piece.
            seconds: how long it may take; None: as long as the endpoint's settings let it.
        """
        written = Written()
        asked = question(account, self._llm)
        checked, new = Checked(asked.known), GoingOn(account.sent)

        async def pass_on(text: str) -> None:
            if text:
                written.text += text
                await show(text)

        try:
            async with self._llm.stream(asked.messages, within=seconds) as reply:
                try:
                    async for piece in reply:
                        await pass_on(new.add(checked.add(piece)))
                finally:
                    written.usage, written.cut = reply.usage, reply.cut
        except Unusable as error:
            written.broken = str(error)
            return written
        if not written.cut:
            await pass_on(new.add(checked.end()) + new.end())
        sound = bool(written.text.strip() or account.sent)
        self._llm.judged(ok=sound)
        written.broken = "" if sound else EMPTY
        return written
