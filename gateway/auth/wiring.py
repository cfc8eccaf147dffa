"""All that stands between the doors and what is behind them, put together as the settings say."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from gateway.auth import grpc_interceptor, http_middleware
from gateway.auth.api_key_cache import KeyRing
from gateway.auth.api_keys import Keys
from gateway.auth.audit import Audit
from gateway.auth.authenticator import Gate, KeyGate, OpenGate, Tokens
from gateway.auth.caller import Callers
from gateway.auth.completion_watcher import Endings
from gateway.auth.origin_guard import OriginGuard
from gateway.auth.session_revocation import Presence
from gateway.auth.settings import AccessSettings
from gateway.auth.signed_links import Links, signing_secret
from gateway.limits.quotas import Quotas
from gateway.limits.rate_window import MemoryCounters, StoredCounters
from gateway.limits.run_slots import Slots
from services.common.database import Database, sqlite

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

_TOLD = (
    "location",
    "retry-after",
    "www-authenticate",
    "x-request-id",
    "x-run-id",
    "x-trace-id",
    "preference-applied",
    "content-disposition",
    "content-range",
    "etag",
    "mcp-session-id",
    *(f"x-ratelimit-{fact}-{what}" for what in ("requests", "tokens") for fact in ("limit", "remaining", "reset")),
)
"""Headers that a page elsewhere may read."""


@dataclass(frozen=True)
class Entry:
    """Who comes in, as whom, and how often."""

    gate: Gate
    links: Links
    callers: Callers
    quotas: Quotas
    audit: Audit
    presence: Presence
    origins: Sequence[str]
    """Of pages elsewhere that may ask."""

    def http(self, app: ASGIApp, port: int) -> ASGIApp:
        """The application, behind all of it; the port is the one it is reached at."""
        guarded: ASGIApp = http_middleware.Identified(
            app, self.gate, self.links, self.callers, quotas=self.quotas, presence=self.presence
        )
        if self.origins:
            methods = ("GET", "HEAD", "POST", "DELETE")
            guarded = CORSMiddleware(
                guarded, allow_origins=self.origins, allow_methods=methods, allow_headers=["*"], expose_headers=_TOLD
            )
        return OriginGuard(guarded, port, self.origins) if isinstance(self.gate, OpenGate) else guarded

    def grpc(self) -> grpc.aio.ServerInterceptor:
        """The same for calls."""
        return grpc_interceptor.Identified(self.gate, self.quotas, self.presence)


@asynccontextmanager
async def entry(
    settings: AccessSettings, callers: Callers, database: Database, stub: "OrchestratorServiceAsyncStub"
) -> AsyncIterator[Entry]:
    """What the settings ask for; runs are followed to their ends within the block.

    Raises:
        InvalidRequest: the issuer's keys are at no place to fetch them from.
    """
    days = StoredCounters(database)
    minutes = MemoryCounters() if database.dialect is sqlite.DIALECT else days
    quotas, audit = Quotas(minutes, days, Slots(database)), Audit(database)
    if settings.authentication == "none":
        gate = OpenGate()
        async with Endings(stub, database, counting=False).followed():
            yield Entry(gate, Links(), callers, quotas, audit, Presence(gate), settings.cors_origins)
        return
    keys = KeyGate(KeyRing(Keys(database)), settings.limits(), _tokens(settings))
    links = Links(await signing_secret(database), settings.link_seconds)
    presence = Presence(keys)
    async with Endings(stub, database).followed(), presence.watched():
        yield Entry(keys, links, callers, quotas, audit, presence, settings.cors_origins)


def _tokens(settings: AccessSettings) -> Tokens | None:
    if not settings.jwt_issuer:
        return None
    from gateway.auth.jwks import Jwks  # noqa: PLC0415  # cryptography is loaded only where there is an issuer
    from gateway.auth.jwt_tokens import JwtTokens  # noqa: PLC0415

    return JwtTokens(
        Jwks(settings.jwt_jwks),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        tenant_claim=settings.jwt_tenant_claim,
        limits=settings.limits(),
    )
