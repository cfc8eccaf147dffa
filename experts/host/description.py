"""Describe response of an expert: its tasks, model cards and current load."""

import hashlib
from datetime import timedelta

from experts.host.active_calls import ProgressUpdate
from experts.host.expert import Expert, Offer
from experts.host.model_manager import Models
from experts.host.model_slot import State
from experts.host.settings import Settings
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad, ModelLoading
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_STATE_FAILED,
    MODEL_STATE_LOADABLE,
    MODEL_STATE_READY,
    ModelCard,
    ModelState,
)

_STATES: dict[State, ModelState.ValueType] = {
    State.LOADABLE: MODEL_STATE_LOADABLE,
    State.READY: MODEL_STATE_READY,
    State.FAILED: MODEL_STATE_FAILED,
}


class Description:
    """Builds Describe responses from an expert and the state of its models."""

    def __init__(self, expert: Expert, models: Models, settings: Settings) -> None:
        self.start_duration: timedelta | None = None
        """Time from the start of the process until it was ready; None before that."""
        self._expert, self._models, self._settings = expert, models, settings
        self._tasks = tuple({offer.spec.name: offer.spec for offer in expert.offers}.values())

    def since(self, known_revision: str) -> DescribeResponse:
        """Returns the description; without tasks and models if the caller knows the current revision."""
        response = self._full_response()
        if response.revision == known_revision:
            return DescribeResponse(revision=known_revision, unchanged=True, load=self.load())
        response.load.CopyFrom(self.load())
        return response

    def load(self) -> ExpertLoad:
        models = self._models
        return ExpertLoad(
            waiting=models.waiting,
            running=models.running,
            loaded=sorted(models.loaded),
            free_bytes=models.free_bytes,
            loading=[_loading(model.id, update) for model in models.all if (update := model.load_progress)],
        )

    def _full_response(self) -> DescribeResponse:
        response = DescribeResponse(
            expert=self._expert.name,
            version=self._expert.version,
            tasks=self._tasks,
            models=[self._card(offer) for offer in self._expert.offers],
            scales_to_zero=self._settings.scales_to_zero,
        )
        if self.start_duration is not None:
            response.start_duration.FromTimedelta(self.start_duration)
        response.revision = hashlib.sha256(response.SerializeToString(deterministic=True)).hexdigest()[:16]
        return response

    def _card(self, offer: Offer) -> ModelCard:
        model, card = self._models.get(offer.spec.name, offer.card.id), ModelCard()
        card.CopyFrom(offer.card)
        card.state, card.revision, card.loaded_bytes = _STATES[model.state], model.revision, model.loaded_bytes
        if not card.region and card.location != MODEL_LOCATION_EXTERNAL:
            card.region = self._settings.region
        if failure := model.failure:
            card.failure = f"{failure.message}; {failure.remedy}"
        for field, seconds in ((card.p50, model.latency.p50), (card.p95, model.latency.p95)):
            if seconds:
                field.FromTimedelta(timedelta(seconds=seconds))
        return card


def _loading(model_id: str, update: ProgressUpdate) -> ModelLoading:
    return ModelLoading(model=model_id, fraction=update.fraction, message=update.message)
