"""Stand-ins for what tests cannot have; each is a server or a client of the real thing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import expert_pb2 as expert
from protos.hugginggpt.v1 import expert_pb2_grpc
from protos.hugginggpt.v1.types_pb2 import MODEL_STATE_READY, REACH_INTERNAL, ModelCard, TaskSpec, Value
from services.runtime.errors import NotFound
from services.runtime.server import serving

Answer = Callable[[expert.InferRequest], Awaitable[Mapping[str, Value]]]
"""What a fake model does with a call; to make it slow, let it wait for an event of the test's."""


async def echo(request: expert.InferRequest) -> Mapping[str, Value]:
    """Gives back the text that came in."""
    return {"text": request.inputs["text"]}


def card(model: str, task: str, description: str = "", **fields: Any) -> ModelCard:
    """A model that runs inside the house and is loaded, unless the fields say otherwise."""
    given: dict[str, Any] = {"revision": "1", "reach": REACH_INTERNAL, "state": MODEL_STATE_READY} | fields
    return ModelCard(id=model, task=task, description=description, **given)


class FakeExpert(expert_pb2_grpc.ExpertServiceServicer):
    """An expert whose models are plain functions.

    Args:
        name: of the expert; replicas share it.
        cards: its models.
        specs: its kinds of task that are not standard, or disagree with the standard.
        answer: what its models do.
        may_sleep: it may be scaled to zero.
    """

    def __init__(
        self,
        name: str,
        cards: Iterable[ModelCard],
        *,
        specs: Iterable[TaskSpec] = (),
        answer: Answer = echo,
        may_sleep: bool = False,
    ) -> None:
        self.name = name
        self.answer = answer
        self.asked: list[expert.InferRequest] = []
        self.described: list[expert.DescribeRequest] = []
        self._may_sleep = may_sleep
        self._own_specs = tuple(specs)
        self._changes = 0
        self.offer(cards)
        self.load = expert.Load(loaded=[card.id for card in self.cards if card.state == MODEL_STATE_READY])

    def offer(self, cards: Iterable[ModelCard]) -> None:
        """From now on it describes these models."""
        self.cards = tuple(cards)
        self._changes += 1

    async def Describe(self, request: expert.DescribeRequest, context: Any) -> expert.DescribeResponse:
        self.described.append(request)
        revision = f"{self.name}-{self._changes}"
        if request.known_revision == revision:
            return expert.DescribeResponse(revision=revision, unchanged=True, load=self.load)
        return expert.DescribeResponse(
            expert=self.name,
            version="0",
            revision=revision,
            tasks=self._specs(),
            models=self.cards,
            may_sleep=self._may_sleep,
            load=self.load,
        )

    async def Infer(self, request: expert.InferRequest, context: Any) -> expert.InferResponse:
        self.asked.append(request)
        if request.model not in {"", *(card.id for card in self.cards)}:
            raise NotFound(f"there is no model {request.model} here", reason="MODEL", remedy="ask for another")
        outputs = await self.answer(request)
        return expert.InferResponse(outputs=outputs, revision=request.revision)

    async def Progress(self, request: expert.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        """Follows nothing: its calls have no steps."""

    @asynccontextmanager
    async def serving(self, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
        """Serves until the block exits; gives its address."""
        register = partial(expert_pb2_grpc.add_ExpertServiceServicer_to_server, self)
        async with serving(register, expert.DESCRIPTOR.services_by_name["ExpertService"], listen=listen) as running:
            yield f"{listen.rpartition(':')[0]}:{running.port}"

    def _specs(self) -> Iterable[TaskSpec]:
        own = {spec.name: spec for spec in self._own_specs}
        standard = standard_tasks()
        names = dict.fromkeys((*own, *(card.task for card in self.cards)))
        return [own.get(name) or standard[name] for name in names if name in own or name in standard]
