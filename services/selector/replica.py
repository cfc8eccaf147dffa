"""A server of an expert, or a dormant expert, and its description."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec


class ReplicaState(Enum):
    """State of a replica."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    """Does not answer, but is not removed yet."""
    DORMANT = "dormant"


@dataclass(frozen=True)
class Description:
    """An expert's description, indexed by task."""

    reply: DescribeResponse
    digest: bytes
    """Digest of tasks and models."""
    specs: Mapping[str, TaskSpec]
    cards: Mapping[str, tuple[ModelCard, ...]]
    """Model cards by task."""

    @classmethod
    def of(cls, reply: DescribeResponse) -> "Description":
        cards: dict[str, list[ModelCard]] = defaultdict(list)
        digest = blake2b(f"{reply.expert}\0{reply.scales_to_zero}".encode(), digest_size=16)
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
    """One server of an expert, or the entry of a dormant one."""

    address: str
    """Empty for a dormant expert."""
    expert: str = ""
    """Name of the expert that last answered there."""
    description: Description | None = None
    """None while the replica is not in the catalogue."""
    arrival: int = 0
    """Order of arrival: the first expert with a new kind of task defines its spec."""
    state: ReplicaState = ReplicaState.UNREACHABLE
    listed: bool = True
    seen: float | None = None
    """Time of the last reply, by the catalogue's clock."""
    error: str = ""
    """Error of the last poll; empty if it succeeded."""
    failing_since: float = 0.0
    load: ExpertLoad = field(default_factory=ExpertLoad)
    loaded: frozenset[str] = frozenset()

    def is_replaceable_by(self, reply: DescribeResponse) -> bool:
        """Whether a stored or preconfigured description may replace this one.

        It may while the expert is dormant and has never been ready: a ready expert reports its start duration.
        """
        if self.state is not ReplicaState.DORMANT or self.description is None:
            return False
        known = self.description.reply
        return not known.HasField("start_duration") and known != reply

    def record_load(self, load: ExpertLoad) -> None:
        """Records the load."""
        self.load = load
        self.loaded = frozenset(load.loaded)

    def endpoint(self, model: str) -> Endpoint:
        """The replica as an endpoint of a model."""
        return Endpoint(
            address=self.address,
            loaded=model in self.loaded,
            queue=self.load.waiting + self.load.running,
            free_bytes=self.load.free_bytes,
        )
