"""An address, or a memory of one, and what an expert said there."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import Endpoint, ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec


class Attention(Enum):
    """Whether an expert can be talked to."""

    ANSWERS = "answers"
    AWAY = "does not answer, but is waited for"
    ASLEEP = "sleeps"


@dataclass(frozen=True)
class Description:
    """What an expert said of itself, in order."""

    reply: DescribeResponse
    digest: bytes
    """Of tasks and models."""
    specs: Mapping[str, TaskSpec]
    cards: Mapping[str, tuple[ModelCard, ...]]
    """By task."""

    @classmethod
    def of(cls, reply: DescribeResponse) -> "Description":
        cards: dict[str, list[ModelCard]] = defaultdict(list)
        digest = blake2b(f"{reply.expert}\0{reply.may_sleep}".encode(), digest_size=16)
        for spec in reply.tasks:
            digest.update(spec.SerializeToString(deterministic=True))
        for card in reply.models:
            cards[card.task].append(card)
            digest.update(card.SerializeToString(deterministic=True))
        return cls(
            reply=reply,
            digest=digest.digest(),
            specs={spec.name: spec for spec in reply.tasks},
            cards={task: tuple(found) for task, found in cards.items()},
        )


@dataclass(eq=False)
class Replica:
    """One server of an expert, or the memory of one that sleeps."""

    address: str
    """Empty if only a memory is left."""
    expert: str = ""
    """Whose it was when it last answered."""
    description: Description | None = None
    """None while it does not count."""
    arrival: int = 0
    """When it began to count: who comes first settles what a new kind of task is."""
    attention: Attention = Attention.AWAY
    listed: bool = True
    seen: float | None = None
    """When it last answered, by the catalogue's clock."""
    trouble: str = ""
    """What it did instead of answering when last asked."""
    troubled_since: float = 0.0
    load: ExpertLoad = field(default_factory=ExpertLoad)
    loaded: frozenset[str] = frozenset()

    def yields_to(self, reply: DescribeResponse) -> bool:
        """Whether another description, told by somebody else, counts for more than this one.

        It does while its expert sleeps and was never seen ready: from then on it tells how long it takes to start.
        """
        if self.attention is not Attention.ASLEEP or self.description is None:
            return False
        known = self.description.reply
        return not known.HasField("start_duration") and known != reply

    def carries(self, load: ExpertLoad) -> None:
        """Takes note of how busy it is."""
        self.load = load
        self.loaded = frozenset(load.loaded)

    def endpoint(self, model: str) -> Endpoint:
        """It as a place where the model can be called."""
        return Endpoint(
            address=self.address,
            loaded=model in self.loaded,
            queue=self.load.waiting + self.load.running,
            free_bytes=self.load.free_bytes,
        )
