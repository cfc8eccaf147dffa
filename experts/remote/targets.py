"""Where a model is reached: a provider and its name there, or a URL."""

import asyncio
from dataclasses import dataclass

from experts.remote import hub_internals
from experts.remote.model_facts import Fact
from experts.remote.model_listing import CHAT, hub, mappings, preferred
from experts.remote.settings import Endpoint, RemoteSettings
from services.common.errors import NotFound

HF = "hf-inference"
_PIPELINES = frozenset({"feature-extraction", "sentence-similarity"})
"""Models of one of these do the other too, so the task stands in the URL."""


@dataclass(frozen=True)
class Target:
    """What the client is told: a URL, or a model that it has been told the provider's name of."""

    provider: str
    model: str


class Route:
    """The way to one model.

    Args:
        fact: what is known of it; without a provider the Hub is asked, once.
    """

    def __init__(self, fact: Fact, settings: RemoteSettings, *, url: str = "") -> None:
        self.model_id, self.via, self.languages = fact.id, fact.via, fact.languages
        self.provider = "the endpoint" if url else fact.provider
        """Who is asked, in words; empty until known."""
        self._fact, self._settings = fact, settings
        self._target = Target(HF, url) if url else None

    @classmethod
    def to(cls, endpoint: Endpoint, settings: RemoteSettings) -> "Route":
        chats = endpoint.task in (CHAT, "text-generation")
        return cls(Fact(endpoint.id, endpoint.task, CHAT if chats else endpoint.task), settings, url=endpoint.url)

    async def target(self) -> Target:
        """Where to ask; left to itself the client would look that up on the event loop.

        Raises:
            NotFound: MODEL, no provider runs it.
        """
        if self._target is None:
            fact = self._fact
            provider, name = fact.provider, fact.provider_id
            if not provider or (provider != HF and not name):
                provider, name = await asyncio.to_thread(self._found)
            self.provider, self._target = provider, self._told(provider, name)
        return self._target

    def _told(self, provider: str, name: str) -> Target:
        if provider == HF:
            pipeline = f"/pipeline/{self._fact.task}" if self._fact.task in _PIPELINES else ""
            return Target(HF, f"{hub_internals.router(HF)}/models/{self.model_id}{pipeline}")
        hub_internals.teach(provider, self.model_id, name, self.via)
        return Target(provider, self.model_id)

    def _found(self) -> tuple[str, str]:
        """Asks the Hub who runs it, and under which name."""
        with hub(self._settings) as client:
            reply = client.get(f"/api/models/{self.model_id}", params={"expand": "inferenceProviderMapping"})
            reply.raise_for_status()
        live = [one for one in mappings(reply.json()) if one["status"] == "live" and one["task"] == self.via]
        wanted = (self._fact.provider,) if self._fact.provider else self._settings.preferred
        chosen = preferred(live, self.via, wanted)
        if not chosen:
            what = f"no provider runs {self.model_id} for {self._fact.task} now"
            raise NotFound(what, reason="MODEL", remedy="take another model, or allow more in REMOTE_PROVIDERS")
        return chosen["provider"], chosen["providerId"]
