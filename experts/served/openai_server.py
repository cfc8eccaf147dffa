"""A server that speaks OpenAI's HTTP, with one call for each kind of task."""

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from experts.endpoints import prompts, results
from experts.endpoints.http_errors import Refusal
from experts.endpoints.media import picture, recording
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.media import png
from experts.served.backend import NONSENSE, Asked, broken
from experts.served.config import MEDIA_TASKS, Model, Server
from services.common.errors import DeadlineExceeded, ServiceError, Unavailable

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import AsyncOpenAI

CONNECT_SECONDS = 5.0
_NO_LIST = frozenset({404, 405, 501})
"""What servers answer that list no models."""
_SIDES = 1024


class OpenAIServer:
    """Open within `open()`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: AsyncOpenAI | None = None
        self._slots = asyncio.Semaphore(server.concurrency)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connects to nobody yet."""
        from openai import AsyncOpenAI

        from experts.endpoints import http_client

        async with (
            http_client.client(
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

    async def problems(self) -> Mapping[str, ServiceError]:
        """By name of the model what keeps it from answering."""
        from openai import APIStatusError

        names = [model.name for model in self._server.models]
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                with self._explained(names[0]):
                    listed = [model.id async for model in self._open_client().models.list()]
        except TimeoutError:
            late = DeadlineExceeded(f"{self._server.name} does not answer", remedy="see whether it runs")
            return dict.fromkeys(names, late)
        except ServiceError as error:
            cause = error.__context__
            lists_none = isinstance(cause, APIStatusError) and cause.status_code in _NO_LIST
            return {} if lists_none else dict.fromkeys(names, error)
        return {name: self._unlisted(name, listed) for name in names if listed and name not in listed}

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> Asked:
        """What is made ready before the loop is troubled."""
        ready = None if task in MEDIA_TASKS else prompts.asked(task, inputs, parameters)
        return Asked(model, task, inputs, parameters, ready)

    async def ask(self, asked: Asked) -> Any:
        method = {
            "automatic-speech-recognition": self._hear,
            "text-to-speech": self._speak,
            "text-to-image": self._paint,
            "feature-extraction": self._embed,
            "sentence-similarity": self._embed,
        }.get(asked.task, self._chat)
        async with self._slots:
            with self._explained(asked.model.name):
                async with asyncio.timeout(self._server.timeout_seconds):
                    return await method(asked)

    def finish(self, asked: Asked) -> Outputs:
        """The answer as outputs."""
        answer, name = asked.answer, asked.model.name
        match asked.task:
            case "automatic-speech-recognition":
                return {"text": answer.strip() or "No speech found."}
            case "text-to-speech":
                return {"audio": recording(answer, name)}
            case "text-to-image":
                return {"image": png(picture(base64.b64decode(answer), name), "picture.png")}
            case "feature-extraction":
                return results.embedding(answer[0])
            case "sentence-similarity":
                scores = [_cosine(answer[0], other) for other in answer[1:]]
                return results.similarity(scores, asked.inputs["sentences"])
            case _:
                return prompts.read(asked.task, answer, asked.inputs, asked.parameters)

    async def _chat(self, asked: Asked) -> str:
        prompt: prompts.Prompt = asked.ready
        wishes = {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "seed": prompt.seed}
        reply: Any = await self._open_client().chat.completions.create(
            model=asked.model.name, messages=prompt.messages, **_given(wishes)
        )
        return reply.choices[0].message.content or ""

    async def _hear(self, asked: Asked) -> str:
        audio = asked.inputs["audio"]
        wishes = _given({"language": asked.parameters.get("language")})
        reply: Any = await self._open_client().audio.transcriptions.create(
            model=asked.model.name, file=(audio.name or "audio", audio.content, audio.media_type), **wishes
        )
        return str(reply.text)

    async def _speak(self, asked: Asked) -> bytes:
        parameters = asked.parameters
        reply: Any = await self._open_client().audio.speech.create(
            model=asked.model.name,
            input=asked.inputs["text"],
            voice=parameters.get("voice", asked.model.voice),
            response_format="wav",
            **_given({"speed": None if parameters.get("speed", 1) == 1 else parameters["speed"]}),
        )
        return bytes(reply.content)

    async def _paint(self, asked: Asked) -> str:
        parameters = asked.parameters
        sides = [parameters.get(side, _SIDES) for side in ("width", "height")]
        size = f"{sides[0]}x{sides[1]}" if {"width", "height"} & parameters.keys() else None
        names = ("negative_prompt", "num_inference_steps", "guidance_scale", "seed")
        more = {name: parameters[name] for name in names if name in parameters}
        reply: Any = await self._open_client().images.generate(
            model=asked.model.name,
            prompt=asked.inputs["text"],
            n=1,
            response_format="b64_json",  # never an address, from which it would have to be fetched
            **_given({"size": size, "extra_body": more or None}),
        )
        return str(reply.data[0].b64_json)

    async def _embed(self, asked: Asked) -> list[list[float]]:
        texts = [asked.inputs["text"], *asked.inputs.get("sentences", ())]
        reply: Any = await self._open_client().embeddings.create(
            model=asked.model.name, input=texts, encoding_format="float"
        )
        vectors = [one.embedding for one in sorted(reply.data, key=lambda one: int(one.index))]
        if len(vectors) != len(texts):
            raise ValueError("as many vectors as texts")
        return vectors

    def _open_client(self) -> Any:
        if self._client is None:
            raise Unavailable(f"{self._server.name} is not open yet", remedy="try again shortly")
        return self._client

    def _unlisted(self, name: str, listed: Sequence[str]) -> ServiceError:
        return Unavailable(f"{self._server.name} has no model {name}", remedy=f"it has {', '.join(listed[:10])}")

    @contextmanager
    def _explained(self, model_name: str) -> Iterator[None]:
        from httpx2 import ConnectTimeout
        from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

        server = self._server
        try:
            yield
        except (APITimeoutError, TimeoutError) as error:
            if isinstance(error.__cause__, ConnectTimeout):
                raise self._away() from error
            what = f"{server.name} did not answer for {model_name} in {server.timeout_seconds:g} s"
            raise DeadlineExceeded(what, remedy="send a smaller input, or raise its timeout_seconds") from error
        except APIConnectionError as error:
            raise self._lost(error.__cause__, model_name) from error
        except APIStatusError as error:
            raise self._refusal(error.response, model_name).error() from None
        except (APIError, *NONSENSE) as error:
            raise broken(model_name, server.name) from error

    def _lost(self, cause: BaseException | None, model_name: str) -> ServiceError:
        """Why there is no answer, which the client hides."""
        from httpx2 import ConnectError, ProxyError

        if isinstance(cause, ServiceError):
            return cause
        if isinstance(cause, ConnectError | ProxyError):
            return self._away()
        what = f"{self._server.name} broke off before {model_name} had answered"
        return Unavailable(what, remedy="try again, or look at its log")

    def _refusal(self, response: "Response", model_name: str) -> Refusal:
        server, headers = self._server, {name.lower(): value for name, value in response.headers.items()}
        access = f"put a key for it into {server.key_variable or 'a variable, and name that in key_variable'}"
        return Refusal(model_name, server.name, response.status_code, headers, response.text, access, key=server.key)

    def _away(self) -> Unavailable:
        return Unavailable(f"{self._server.name} cannot be reached", remedy="see whether it runs")


def _given(wishes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wishes.items() if value is not None}


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other) or 1.0)
