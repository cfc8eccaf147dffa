"""Sends one scripted reply over HTTP, whole or streamed."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_never

from tests.fakes.llm import http
from tests.fakes.llm.scripted_replies import (
    ErrorReply,
    RawReply,
    ScriptedReply,
    StalledReply,
    TextReply,
    TruncatedReply,
)


@dataclass(frozen=True)
class Exchange:
    """One request and the connection for its response.

    Args:
        body: Body of the request.
        prompt_tokens: Tokens of its messages.
        writer: Connection to the client.
        released: Event that resumes stalled replies.
        sent: Receives each sent piece with its time.
    """

    body: Any
    prompt_tokens: int
    writer: asyncio.StreamWriter
    released: asyncio.Event
    sent: list[tuple[float, str]]

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    def usage(self, pieces: int) -> dict[str, int]:
        total = self.prompt_tokens + pieces
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": pieces, "total_tokens": total}

    def chunk(self, choices: list[Any], **more: Any) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.streams else "chat.completion"
        return {"id": "c1", "object": kind, "created": 0, "model": self.body["model"], "choices": choices} | more


def error(message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Body of an error in OpenAI's format."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


async def send_reply(reply: ScriptedReply, exchange: Exchange) -> None:
    """Sends the scripted reply."""
    match reply:
        case ErrorReply():
            await _fail(reply, exchange)
        case RawReply():
            media_type = "text/event-stream" if exchange.streams else "application/json"
            await http.send_head(exchange.writer, 200, media_type)
            await http.send(exchange.writer, reply.content)
            await http.send(exchange.writer, b"")
        case TextReply():
            await asyncio.sleep(reply.after)
            await (_stream if exchange.streams else _whole)(reply, exchange)
        case TruncatedReply():
            await _begin(exchange)
            await _pieces(TextReply(reply.text), exchange)
        case StalledReply():
            await _stall(reply, exchange)
        case _:
            assert_never(reply)


async def _fail(reply: ErrorReply, exchange: Exchange) -> None:
    headers = dict(reply.headers)
    if reply.retry_after is not None:
        headers["Retry-After"] = str(reply.retry_after)
    body = error("the script says so") if reply.body is None else reply.body
    await http.send_json(exchange.writer, body, status=reply.status, headers=headers)


async def _whole(reply: TextReply, exchange: Exchange) -> None:
    pieces = cut(reply)
    message = {"role": "assistant", "content": reply.text}
    usage = {"usage": exchange.usage(len(pieces))} if reply.usage else {}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    await http.send_json(exchange.writer, exchange.chunk([choice], **usage))


async def _stall(reply: StalledReply, exchange: Exchange) -> None:
    if not exchange.streams:
        await exchange.released.wait()
        await _whole(TextReply(reply.text), exchange)
        return
    await _begin(exchange)
    pieces = await _pieces(TextReply(reply.text), exchange)
    await exchange.released.wait()
    await _end(TextReply(reply.text), pieces, exchange)


async def _stream(reply: TextReply, exchange: Exchange) -> None:
    await _begin(exchange)
    await _end(reply, await _pieces(reply, exchange), exchange)


async def _begin(exchange: Exchange) -> None:
    await http.send_head(exchange.writer, 200, "text/event-stream")
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    await http.send_event(exchange.writer, exchange.chunk([first]))


async def _pieces(reply: TextReply, exchange: Exchange) -> int:
    """Streams the text; the time of piece n counts from the first piece, independent of the time for sending."""
    loop = asyncio.get_running_loop()
    start, pieces = loop.time(), cut(reply)
    for number, piece in enumerate(pieces):
        if reply.tokens_per_second:
            await asyncio.sleep(start + number / reply.tokens_per_second - loop.time())
        exchange.sent.append((loop.time(), piece))
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        await http.send_event(exchange.writer, exchange.chunk([choice]))
    return len(pieces)


async def _end(reply: TextReply, pieces: int, exchange: Exchange) -> None:
    if reply.finish:
        last = {"index": 0, "delta": {}, "finish_reason": reply.finish}
        await http.send_event(exchange.writer, exchange.chunk([last]))
    if reply.usage and (exchange.body.get("stream_options") or {}).get("include_usage"):
        await http.send_event(exchange.writer, exchange.chunk([], usage=exchange.usage(pieces)))
    await http.send_event(exchange.writer, "[DONE]")
    await http.send(exchange.writer, b"")


def cut(reply: TextReply) -> list[str]:
    """The pieces in which the text is sent."""
    if reply.chunk:
        starts: Iterable[int] = range(0, len(reply.text), reply.chunk)
        return [reply.text[start : start + reply.chunk] for start in starts]
    return re.findall(r"\s*\S+\s*", reply.text)
