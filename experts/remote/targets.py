"""Address of a remote model: a provider and the model's name there, or a URL."""

import asyncio
from dataclasses import dataclass

from experts.remote import hub_internals
from experts.remote.model_facts import ListedModel
from experts.remote.model_listing import CHAT, hub, mappings, preferred
from experts.remote.settings import Endpoint, RemoteSettings
from services.common.errors import NotFound

HF = "hf-inference"
_PIPELINES = frozenset({"feature-extraction", "sentence-similarity"})
"""Tasks that the same models support, so that the URL must name the task."""


@dataclass(frozen=True)
class Target:
    """Arguments for the client: a URL, or a model whose name at the provider is registered."""

    provider: str
    model: str


class Route:
    """Resolves the address of one model.

    Args:
        model: the model; without a provider it is looked up on the Hub once.
        settings: of the expert.
        url: URL of its endpoint; empty for models at providers.
    """

    def __init__(self, model: ListedModel, settings: RemoteSettings, *, url: str = "") -> None:
        self.model_id, self.via, self.languages = model.id, model.via, model.languages
        self.provider = "the endpoint" if url else model.provider
        """Name for messages; empty until known."""
        self._model, self._settings = model, settings
        self._target = Target(HF, url) if url else None

    @classmethod
    def to(cls, endpoint: Endpoint, settings: RemoteSettings) -> "Route":
        chats = endpoint.task in (CHAT, "text-generation")
        return cls(
            ListedModel(endpoint.id, endpoint.task, CHAT if chats else endpoint.task), settings, url=endpoint.url
        )

    async def target(self) -> Target:
        """Returns the address, looked up on a thread; the client itself would block the event loop.

        Raises:
            NotFound: MODEL, no provider runs it.
        """
        if self._target is None:
            model = self._model
            provider, name = model.provider, model.provider_id
            if not provider or (provider != HF and not name):
                provider, name = await asyncio.to_thread(self._look_up)
            self.provider, self._target = provider, self._target_of(provider, name)
        return self._target

    def _target_of(self, provider: str, name: str) -> Target:
        if provider == HF:
            pipeline = f"/pipeline/{self._model.task}" if self._model.task in _PIPELINES else ""
            return Target(HF, f"{hub_internals.router(HF)}/models/{self.model_id}{pipeline}")
        hub_internals.set_provider_id(provider, self.model_id, name, self.via)
        return Target(provider, self.model_id)

    def _look_up(self) -> tuple[str, str]:
        """Looks up on the Hub which provider runs the model, and its name there."""
        with hub(self._settings) as client:
            reply = client.get(f"/api/models/{self.model_id}", params={"expand": "inferenceProviderMapping"})
            reply.raise_for_status()
        live = [one for one in mappings(reply.json()) if one["status"] == "live" and one["task"] == self.via]
        providers = (self._model.provider,) if self._model.provider else self._settings.preferred
        chosen = preferred(live, self.via, providers)
        if not chosen:
            what = f"no provider currently runs {self.model_id} for {self._model.task}"
            raise NotFound(what, reason="MODEL", remedy="use another model, or name more in REMOTE_PROVIDERS")
        return chosen["provider"], chosen["providerId"]
