"""Immutable view of the catalogue: tasks that can be planned, models that can be selected, and problems."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b

from protos.hugginggpt.v1.artifact_pb2 import Modality
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, ModelCard
from protos.hugginggpt.v1.task_pb2 import CatalogTask, Port, TaskSpec
from services.selector.replica import Description, Replica, ReplicaState
from services.selector.routing_table import RoutingTable
from services.selector.task_offers import ReplicaOffer, TaskOffers


def spec_difference(described: TaskSpec, accepted: TaskSpec) -> str:
    """Describes the differences between ports; empty if there are none."""
    kinds = (("input", described.inputs, accepted.inputs), ("output", described.outputs, accepted.outputs))
    return "; ".join(
        text
        for kind, described_ports, accepted_ports in kinds
        for text in _differences(kind, described_ports, accepted_ports)
    )


def _differences(kind: str, described: Iterable[Port], accepted: Iterable[Port]) -> Iterator[str]:
    described_ports, accepted_ports = {port.name: port for port in described}, {port.name: port for port in accepted}
    for name in sorted(accepted_ports.keys() - described_ports.keys()):
        yield f"{kind} {name} is missing"
    for name in sorted(described_ports.keys() - accepted_ports.keys()):
        yield f"{kind} {name} is unknown"
    for name in sorted(described_ports.keys() & accepted_ports.keys()):
        actual, expected = _shape(described_ports[name]), _shape(accepted_ports[name])
        if actual != expected:
            yield f"{kind} {name} is {actual} instead of {expected}"


def _shape(port: Port) -> str:
    need = "required" if port.required else "optional"
    modality = Modality.Name(port.modality).removeprefix("MODALITY_").lower()
    return f"{need} {modality}{' list' if port.many else ''}"


class CatalogView:
    """Immutable view of what the replicas offer.

    Args:
        replicas: those with a description are included; the first to arrive defines the spec of a new task.
        standard: specs of the standard tasks.
        table: the routing table of the operator.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        standard: Mapping[str, TaskSpec],
        table: RoutingTable = RoutingTable(),  # noqa: B008  # frozen
    ) -> None:
        self._standard = standard
        self._table = table
        self._specs: dict[str, TaskSpec] = {}
        self._problems: dict[str, dict[str, None]] = defaultdict(dict)
        self._task_offers: dict[str, TaskOffers] = {}
        self.replica_offers = tuple(
            self._replica_offer(replica, replica.description)
            for replica in sorted(replicas, key=lambda replica: replica.arrival)
            if replica.description
        )
        self.tasks: Mapping[str, CatalogTask] = {
            name: task for name in sorted(self._specs) if (task := self._task(name)).experts
        }
        self.failing: Mapping[str, CatalogTask] = {
            name: task
            for name in sorted(self._specs)
            if name not in self.tasks and (task := self._failing_task(name)).experts
        }
        """Offered tasks whose models have all failed."""
        listed = (*self.tasks.values(), CatalogTask(), *self.failing.values())
        self.tasks_digest = _digest(task.SerializeToString(deterministic=True) for task in listed)
        self.revision = (
            f"{self.tasks_digest}.{_digest((*sorted(map(_identity, self.replica_offers)), table.digest.encode()))}"
        )
        """Revision of the whole view; begins with the digest of the tasks."""

    def offers_of(self, task: str) -> TaskOffers | None:
        """The models of a task; None if no expert offers it."""
        if task not in self._specs:
            return None
        if task not in self._task_offers:
            offers = [replica_offer for replica_offer in self.replica_offers if task in replica_offer.tasks]
            self._task_offers[task] = TaskOffers(self._specs[task], offers)
        return self._task_offers[task]

    def models_of(self, task: str) -> Sequence[ModelCard]:
        """The cards of a task, all for an empty name, also of models that have failed; by task and id."""
        return [card for card in self._models if card.task == task] if task else self._models

    @cached_property
    def _models(self) -> Sequence[ModelCard]:
        all_offers = [task_offers for task in self._specs if (task_offers := self.offers_of(task))]
        cards = [offer.card for task_offers in all_offers for offer in (*task_offers.offers, *task_offers.failed)]
        return sorted(cards, key=sort_key)

    def problems(self, expert: str) -> Sequence[str]:
        """Problems in the description of an expert."""
        return tuple(self._problems.get(expert, ()))

    def _replica_offer(self, replica: Replica, description: Description) -> ReplicaOffer:
        names = dict.fromkeys((*description.specs, *description.cards))
        offered = frozenset(name for name in names if self._is_accepted(name, description))
        self._note_failures(description)
        return ReplicaOffer(replica, description, replica.state, offered)

    def _is_accepted(self, name: str, description: Description) -> bool:
        described = description.specs.get(name)
        accepted = self._standard.get(name) or self._specs.get(name) or described
        problems = self._problems[description.reply.expert]
        if accepted is None:
            problems[f"{name} is omitted: it has models but no spec, and is not a standard task"] = None
            return False
        if described and (difference := spec_difference(described, accepted)):
            reference = "the standard" if name in self._standard else "the first expert's"
            problems[f"{name} is omitted: its spec differs from {reference}: {difference}"] = None
            return False
        self._specs.setdefault(name, accepted)
        return True

    def _note_failures(self, description: Description) -> None:
        for cards in description.cards.values():
            for card in cards:
                if card.state == MODEL_STATE_FAILED:
                    why = card.failure or "no reason given"
                    self._problems[description.reply.expert][f"model {card.id} has failed: {why}"] = None

    def _can_run(self, replica_offer: ReplicaOffer, task: str) -> bool:
        """Whether a replica has a model for the task that has not failed and is not forbidden."""
        cards = replica_offer.description.cards.get(task, ())
        return any(
            card.state != MODEL_STATE_FAILED and not self._table.forbids(task, card.id, card.revision) for card in cards
        )

    def _task(self, name: str) -> CatalogTask:
        offers = [
            replica_offer
            for replica_offer in self.replica_offers
            if name in replica_offer.tasks and self._can_run(replica_offer, name)
        ]
        return CatalogTask(
            spec=self._specs[name],
            experts=sorted({replica_offer.expert for replica_offer in offers}),
            dormant=all(replica_offer.state is ReplicaState.DORMANT for replica_offer in offers),
        )

    def _failing_task(self, name: str) -> CatalogTask:
        offers = {
            replica_offer.expert
            for replica_offer in self.replica_offers
            if name in replica_offer.tasks
            and any(card.state == MODEL_STATE_FAILED for card in replica_offer.description.cards.get(name, ()))
        }
        return CatalogTask(spec=self._specs[name], experts=sorted(offers))


def sort_key(card: ModelCard) -> tuple[str, str, str, str]:
    """Sort key of cards in lists."""
    return (card.task, card.id, card.expert, card.revision)


def _identity(replica_offer: ReplicaOffer) -> bytes:
    return b"\0".join(
        (
            replica_offer.replica.address.encode(),
            replica_offer.state.name.encode(),
            replica_offer.description.digest,
        )
    )


def _digest(parts: Iterable[bytes]) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(4))
        digest.update(part)
    return digest.hexdigest()
