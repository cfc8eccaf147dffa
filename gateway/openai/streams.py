"""Streams as OpenAI's clients read them.

Their reader takes a blank line for the end of an event even where only a comment stood before it, so what keeps a
silent stream alive is a comment without one.
"""

from abc import abstractmethod
from collections.abc import Mapping

from gateway.http.problem import problem
from gateway.http.sse import HEARTBEAT_SECONDS, Stream, single_line_json
from gateway.openai.chat_completion import Completion
from gateway.openai.owned_run_stream import Source
from gateway.openai.response_projection import Event, Projection
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ServiceError, Unavailable

_DONE = b"data: [DONE]\n\n"


class _OpenAIStream(Stream):
    greeting = b": accepted\n"
    heartbeat = b": still at it\n"

    def __init__(
        self, source: Source, headers: Mapping[str, str], *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers, heartbeat_seconds=heartbeat_seconds)
        self._source = source

    async def next(self) -> tuple[bytes, bool]:
        """Frames: what many events mean to the client is nothing."""
        try:
            while (event := await self._source.read()) is not None:
                frames = self.frames(event)
                if frames or self._source.ended:
                    return frames, self._source.ended
        except ServiceError as error:
            return self.broken(error), True
        return b"", True

    async def close(self) -> None:
        await self._source.close()

    @abstractmethod
    def frames(self, event: RunEvent) -> bytes:
        """What an event is told as; empty if it is not."""

    @abstractmethod
    def broken(self, error: ServiceError) -> bytes:
        """What is said where the stream ends too early."""


class CompletionStream(_OpenAIStream):
    """A chat completion in chunks."""

    def __init__(
        self,
        source: Source,
        completion: Completion,
        headers: Mapping[str, str],
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(source, headers, heartbeat_seconds=heartbeat_seconds)
        self._completion = completion

    def frames(self, event: RunEvent) -> bytes:
        chunks = b"".join(b"data: %s\n\n" % single_line_json(chunk) for chunk in self._completion.take(event))
        return chunks + _DONE if event.HasField("run_ended") else chunks

    def broken(self, error: ServiceError) -> bytes:
        return b"data: %s\n\n" % single_line_json({"error": problem(error)["error"]})


class ResponseStream(_OpenAIStream):
    """A response's typed events.

    Args:
        source: the run's events, from the first.
        projection: what makes the response's of them.
        headers: of the answer.
        after: number of the last event already seen; -1 for none.
        heartbeat_seconds: longest silence.
    """

    def __init__(
        self,
        source: Source,
        projection: Projection,
        headers: Mapping[str, str],
        after: int = -1,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(source, headers, heartbeat_seconds=heartbeat_seconds)
        self._projection = projection
        self._seen = after

    def frames(self, event: RunEvent) -> bytes:
        new = [each for each in self._projection.take(event) if each["sequence_number"] > self._seen]
        self._seen = new[-1]["sequence_number"] if new else self._seen
        return b"".join(map(_frame, new))

    def broken(self, error: ServiceError) -> bytes:
        """Nothing where the client can come back for the rest; else what would happen again."""
        if isinstance(error, Unavailable):
            return b""
        told = problem(error)["error"]
        event = {"type": "error", "code": told["code"], "message": told["message"], "param": told["param"]}
        return b"event: error\ndata: %s\n\n" % single_line_json({**event, "sequence_number": self._seen + 1})


def _frame(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event["sequence_number"],
        event["type"].encode(),
        single_line_json(event),
    )
