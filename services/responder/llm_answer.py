"""The answer by an LLM, shown as it is written."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.llm.client import LLM, LLMError, Usage
from services.responder.allowed_links import Known
from services.responder.output_filter import Checked
from services.responder.prompt import question
from services.responder.reasoning_filter import Thoughts
from services.responder.resume import GoingOn
from services.responder.run_summary import Account

CONTROLLER = "llm"
EMPTY = "the model gave an empty answer"
ONLY_THOUGHT = "the model came to the limit of its tokens before its answer began; raise LLM_ANSWER_TOKENS"

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

        async def pass_on(text: str) -> None:
            if text:
                written.text += text
                await show(text)

        try:
            asked = question(account, self._llm)
            stream = _Stream(asked.known, account.sent)
            async with self._llm.stream(asked.messages, timeout_seconds=seconds) as reply:
                try:
                    async for piece in reply:
                        await pass_on(stream.add(piece))
                finally:
                    written.usage, written.cut = reply.usage, reply.is_truncated
        except LLMError as error:
            written.broken = str(error)
            return written
        if not written.cut:
            await pass_on(stream.end())
        sound = bool(written.text.strip() or account.sent)
        self._llm.record_answer(valid=sound)
        written.broken = "" if sound else ONLY_THOUGHT if written.cut else EMPTY
        return written


class _Stream:
    """All that stands between what a model writes and what is shown."""

    def __init__(self, known: Known, sent: str) -> None:
        self._thoughts, self._checked, self._new = Thoughts(), Checked(known), GoingOn(sent)

    def add(self, text: str) -> str:
        return self._new.add(self._checked.add(self._thoughts.add(text)))

    def end(self) -> str:
        return self.add(self._thoughts.end()) + self._new.add(self._checked.end()) + self._new.end()
