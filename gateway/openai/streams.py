"""Server-sent event streams for OpenAI clients.

OpenAI's client treats every blank line as the end of an event, even after a comment only. Heartbeats are therefore
comments without a blank line.
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
    heartbeat = b": heartbeat\n"

    def __init__(
        self, source: Source, headers: Mapping[str, str], *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers, heartbeat_seconds=heartbeat_seconds)
        self._source = source

    async def next(self) -> tuple[bytes, bool]:
        """Reads until an event produces frames or the run ends."""
        try:
            while (event := await self._source.read()) is not None:
                frames = self.event_frames(event)
                if frames or self._source.ended:
                    return frames, self._source.ended
        except ServiceError as error:
            return self.error_frames(error), True
        return b"", True

    async def close(self) -> None:
        await self._source.close()

    @abstractmethod
    def event_frames(self, event: RunEvent) -> bytes:
        """Renders an event; empty if the client does not need it."""

    @abstractmethod
    def error_frames(self, error: ServiceError) -> bytes:
        """Renders the error that ends the stream early."""


class CompletionStream(_OpenAIStream):
    """Stream of the chunks of a chat completion."""

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

    def event_frames(self, event: RunEvent) -> bytes:
        chunks = b"".join(b"data: %s\n\n" % single_line_json(chunk) for chunk in self._completion.take(event))
        return chunks + _DONE if event.HasField("run_ended") else chunks

    def error_frames(self, error: ServiceError) -> bytes:
        return b"data: %s\n\n" % single_line_json({"error": problem(error)["error"]})


class ResponseStream(_OpenAIStream):
    """Stream of the typed events of a response.

    Args:
        source: events of the run from the first.
        projection: projects events of the run to events of the response.
        headers: response headers.
        after: number of the last event received; -1 for none.
        heartbeat_seconds: interval of heartbeats.
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
        self._last_number = after

    def event_frames(self, event: RunEvent) -> bytes:
        new = [each for each in self._projection.take(event) if each["sequence_number"] > self._last_number]
        self._last_number = new[-1]["sequence_number"] if new else self._last_number
        return b"".join(map(_frame, new))

    def error_frames(self, error: ServiceError) -> bytes:
        """Renders nothing for a temporary failure, after which the client can resume; otherwise an error event."""
        if isinstance(error, Unavailable):
            return b""
        content = problem(error)["error"]
        event = {"type": "error", "code": content["code"], "message": content["message"], "param": content["param"]}
        return b"event: error\ndata: %s\n\n" % single_line_json({**event, "sequence_number": self._last_number + 1})


def _frame(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event["sequence_number"],
        event["type"].encode(),
        single_line_json(event),
    )
