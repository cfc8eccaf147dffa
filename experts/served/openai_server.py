"""Client of servers with OpenAI's HTTP API, with one method for each kind of task."""

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from experts.endpoints import prompts, results
from experts.endpoints.http_errors import ErrorResponse
from experts.endpoints.media import check_audio, decode_image
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.media import png
from experts.served.backend import REPLY_ERRORS, ServedCall, invalid_reply
from experts.served.config import MEDIA_TASKS, Model, Server
from services.common.errors import DeadlineExceeded, ServiceError, Unavailable

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import AsyncOpenAI

CONNECT_SECONDS = 5.0
_NO_LIST_STATUSES = frozenset({404, 405, 501})
"""Statuses of servers that do not list models."""
_DEFAULT_SIDE = 1024


class OpenAIServer:
    """Backend of one server; usable within `open()`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: AsyncOpenAI | None = None
        self._slots = asyncio.Semaphore(server.concurrency)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Creates the client, which connects on the first call."""
        from openai import AsyncOpenAI

        from experts.endpoints import http_client

        async with (
            http_client.open_client(
                seconds=self._server.timeout_seconds, reply_bytes=self._server.reply_bytes
            ) as connections,
            AsyncOpenAI(
                api_key=self._server.key or "none",
                base_url=self._server.address,
                max_retries=0,
                timeout=connections.timeout,
                http_client=connections,
            ) as client,
        ):
            self._client = client
            yield
        self._client = None

    async def check_models(self) -> Mapping[str, ServiceError]:
        """Returns the error of each model that is not ready, by model name."""
        from openai import APIStatusError

        names = [model.name for model in self._server.models]
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                with self._translate_errors(names[0]):
                    listed = [model.id async for model in self._open_client().models.list()]
        except TimeoutError:
            timeout = DeadlineExceeded(f"{self._server.name} does not answer", remedy="check that it is running")
            return dict.fromkeys(names, timeout)
        except ServiceError as error:
            cause = error.__context__
            lists_none = isinstance(cause, APIStatusError) and cause.status_code in _NO_LIST_STATUSES
            return {} if lists_none else dict.fromkeys(names, error)
        return {name: self._missing_model_error(name, listed) for name in names if listed and name not in listed}

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> ServedCall:
        """Builds the prompt of tasks that run as a chat."""
        ready = None if task in MEDIA_TASKS else prompts.build_prompt(task, inputs, parameters)
        return ServedCall(model, task, inputs, parameters, ready)

    async def infer(self, call: ServedCall) -> Any:
        method = {
            "automatic-speech-recognition": self._transcribe,
            "text-to-speech": self._synthesize_speech,
            "text-to-image": self._generate_image,
            "feature-extraction": self._embed,
            "sentence-similarity": self._embed,
        }.get(call.task, self._chat)
        async with self._slots:
            with self._translate_errors(call.model.name):
                async with asyncio.timeout(self._server.timeout_seconds):
                    return await method(call)

    def finish(self, call: ServedCall) -> Outputs:
        """Converts the answer to outputs."""
        answer, name = call.answer, call.model.name
        match call.task:
            case "automatic-speech-recognition":
                return {"text": answer.strip() or "No speech found."}
            case "text-to-speech":
                return {"audio": check_audio(answer, name)}
            case "text-to-image":
                return {"image": png(decode_image(base64.b64decode(answer), name), "picture.png")}
            case "feature-extraction":
                return results.build_embedding(answer[0])
            case "sentence-similarity":
                scores = [_cosine(answer[0], other) for other in answer[1:]]
                return results.build_similarity(scores, call.inputs["sentences"])
            case _:
                return prompts.parse_reply(call.task, answer, call.inputs, call.parameters)

    async def _chat(self, call: ServedCall) -> str:
        prompt: prompts.Prompt = call.request
        options = {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "seed": prompt.seed}
        reply: Any = await self._open_client().chat.completions.create(
            model=call.model.name, messages=prompt.messages, **_without_none(options)
        )
        return reply.choices[0].message.content or ""

    async def _transcribe(self, call: ServedCall) -> str:
        audio = call.inputs["audio"]
        options = _without_none({"language": call.parameters.get("language")})
        reply: Any = await self._open_client().audio.transcriptions.create(
            model=call.model.name, file=(audio.name or "audio", audio.content, audio.media_type), **options
        )
        return str(reply.text)

    async def _synthesize_speech(self, call: ServedCall) -> bytes:
        parameters = call.parameters
        reply: Any = await self._open_client().audio.speech.create(
            model=call.model.name,
            input=call.inputs["text"],
            voice=parameters.get("voice", call.model.voice),
            response_format="wav",
            **_without_none({"speed": None if parameters.get("speed", 1) == 1 else parameters["speed"]}),
        )
        return bytes(reply.content)

    async def _generate_image(self, call: ServedCall) -> str:
        parameters = call.parameters
        sides = [parameters.get(side, _DEFAULT_SIDE) for side in ("width", "height")]
        size = f"{sides[0]}x{sides[1]}" if {"width", "height"} & parameters.keys() else None
        names = ("negative_prompt", "num_inference_steps", "guidance_scale", "seed")
        extra = {name: parameters[name] for name in names if name in parameters}
        reply: Any = await self._open_client().images.generate(
            model=call.model.name,
            prompt=call.inputs["text"],
            n=1,
            response_format="b64_json",  # not a URL, which would have to be fetched
            **_without_none({"size": size, "extra_body": extra or None}),
        )
        return str(reply.data[0].b64_json)

    async def _embed(self, call: ServedCall) -> list[list[float]]:
        texts = [call.inputs["text"], *call.inputs.get("sentences", ())]
        reply: Any = await self._open_client().embeddings.create(
            model=call.model.name, input=texts, encoding_format="float"
        )
        vectors = [item.embedding for item in sorted(reply.data, key=lambda item: int(item.index))]
        if len(vectors) != len(texts):
            raise ValueError("the numbers of vectors and texts differ")
        return vectors

    def _open_client(self) -> Any:
        if self._client is None:
            raise Unavailable(f"{self._server.name} is not connected yet", remedy="try again shortly")
        return self._client

    def _missing_model_error(self, name: str, listed: Sequence[str]) -> ServiceError:
        return Unavailable(f"{self._server.name} has no model {name}", remedy=f"it has {', '.join(listed[:10])}")

    @contextmanager
    def _translate_errors(self, model_name: str) -> Iterator[None]:
        from httpx2 import ConnectTimeout
        from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

        server = self._server
        try:
            yield
        except (APITimeoutError, TimeoutError) as error:
            if isinstance(error.__cause__, ConnectTimeout):
                raise self._unreachable_error() from error
            message = f"{server.name} did not answer for {model_name} in {server.timeout_seconds:g} s"
            raise DeadlineExceeded(message, remedy="send a smaller input, or raise its timeout_seconds") from error
        except APIConnectionError as error:
            raise self._connection_error(error.__cause__, model_name) from error
        except APIStatusError as error:
            raise self._error_response(error.response, model_name).to_error() from None
        except (APIError, *REPLY_ERRORS) as error:
            raise invalid_reply(model_name, server.name) from error

    def _connection_error(self, cause: BaseException | None, model_name: str) -> ServiceError:
        """Returns the error for the cause of a connection error, which the client hides."""
        from httpx2 import ConnectError, ProxyError

        if isinstance(cause, ServiceError):
            return cause
        if isinstance(cause, ConnectError | ProxyError):
            return self._unreachable_error()
        message = f"{self._server.name} closed the connection before {model_name} had answered"
        return Unavailable(message, remedy="try again, or see its log")

    def _error_response(self, response: "Response", model_name: str) -> ErrorResponse:
        server, headers = self._server, {name.lower(): value for name, value in response.headers.items()}
        access = f"set a valid key in {server.key_variable or 'a variable, and name that in key_variable'}"
        return ErrorResponse(
            model_name, server.name, response.status_code, headers, response.text, access, key=server.key
        )

    def _unreachable_error(self) -> Unavailable:
        return Unavailable(f"{self._server.name} cannot be reached", remedy="check that it is running")


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    product = math.fsum(a * b for a, b in zip(first, second, strict=True))
    return product / (math.hypot(*first) * math.hypot(*second) or 1.0)
