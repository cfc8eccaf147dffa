"""Address of a remote model: a provider and the model's name there, or a URL."""

import asyncio
from dataclasses import dataclass

from experts.remote import hub_internals
from experts.remote.model_listing import CHAT, ListedModel, choose_mapping, open_hub_client, read_mappings
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
        self.model_id, self.provider_task, self.languages = model.id, model.provider_task, model.languages
        self.provider = "the endpoint" if url else model.provider
        """Name for messages; empty until known."""
        self._model, self._settings = model, settings
        self._target = Target(HF, url) if url else None

    @classmethod
    def for_endpoint(cls, endpoint: Endpoint, settings: RemoteSettings) -> "Route":
        uses_chat = endpoint.task in (CHAT, "text-generation")
        return cls(
            ListedModel(endpoint.id, endpoint.task, CHAT if uses_chat else endpoint.task), settings, url=endpoint.url
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
            self.provider, self._target = provider, self._make_target(provider, name)
        return self._target

    def _make_target(self, provider: str, name: str) -> Target:
        if provider == HF:
            pipeline = f"/pipeline/{self._model.task}" if self._model.task in _PIPELINES else ""
            return Target(HF, f"{hub_internals.router_url(HF)}/models/{self.model_id}{pipeline}")
        hub_internals.set_provider_id(provider, self.model_id, name, self.provider_task)
        return Target(provider, self.model_id)

    def _look_up(self) -> tuple[str, str]:
        """Looks up on the Hub which provider runs the model, and its name there."""
        with open_hub_client(self._settings) as client:
            reply = client.get(f"/api/models/{self.model_id}", params={"expand": "inferenceProviderMapping"})
            reply.raise_for_status()
        live = [
            mapping
            for mapping in read_mappings(reply.json())
            if mapping["status"] == "live" and mapping["task"] == self.provider_task
        ]
        providers = (self._model.provider,) if self._model.provider else self._settings.preferred_providers
        chosen = choose_mapping(live, self.provider_task, providers)
        if not chosen:
            message = f"no provider currently runs {self.model_id} for {self._model.task}"
            raise NotFound(message, reason="MODEL", remedy="use another model, or name more in REMOTE_PROVIDERS")
        return chosen["provider"], chosen["providerId"]
