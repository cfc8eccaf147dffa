"""Builds authentication, limits and quotas from the settings."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from starlette.types import ASGIApp

from gateway.auth.api_keys import ApiKeyCache, Keys
from gateway.auth.audit import Audit
from gateway.auth.authenticator import Authenticator, KeyAuthenticator, OpenAuthenticator, TokenAuthenticator
from gateway.auth.identity import CallerFactory
from gateway.auth.session_revocation import ActiveSessions
from gateway.auth.settings import AccessSettings
from gateway.auth.signed_links import LinkSigner, signing_secret
from gateway.core.completion_watcher import CompletionWatcher
from gateway.grpc import interceptors
from gateway.http import authentication
from gateway.http.authentication import OriginGuard
from gateway.limits.quotas import Quotas, RunSlots
from gateway.limits.usage_counters import MemoryCounters, StoredCounters
from services.common.database import Database, sqlite

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub


@dataclass(frozen=True)
class AccessControl:
    """Authentication, limits and audit log, and the middleware and interceptor that apply them."""

    authenticator: Authenticator
    link_signer: LinkSigner
    callers: CallerFactory
    quotas: Quotas
    audit: Audit
    sessions: ActiveSessions
    origins: Sequence[str]
    """Origins of web pages that may call the API (CORS)."""

    def http(self, app: ASGIApp, port: int) -> ASGIApp:
        """Wraps the application in authentication and limits; port is the HTTP port."""
        is_open = isinstance(self.authenticator, OpenAuthenticator)
        return authentication.AuthenticationMiddleware(
            app,
            self.authenticator,
            self.link_signer,
            self.callers,
            quotas=self.quotas,
            sessions=self.sessions,
            origin_guard=OriginGuard(port, self.origins) if is_open else None,
            origins=self.origins,
        )

    def grpc(self) -> grpc.aio.ServerInterceptor:
        """Returns the interceptor that authenticates gRPC calls."""
        return interceptors.AuthenticationInterceptor(self.authenticator, self.quotas, self.sessions)


@asynccontextmanager
async def access_control(
    settings: AccessSettings, callers: CallerFactory, database: Database, stub: "OrchestratorServiceAsyncStub"
) -> AsyncIterator[AccessControl]:
    """Builds access control as the settings say, and follows ended runs and batches within the block.

    Raises:
        InvalidRequest: the location of the issuer's keys is invalid.
    """
    days = StoredCounters(database)
    minutes = MemoryCounters() if database.dialect is sqlite.DIALECT else days
    quotas, audit = Quotas(minutes, days, RunSlots(database)), Audit(database)
    if settings.authentication == "none":
        authenticator = OpenAuthenticator()
        async with CompletionWatcher(stub, database, counting=False).running():
            yield AccessControl(
                authenticator,
                LinkSigner(),
                callers,
                quotas,
                audit,
                ActiveSessions(authenticator),
                settings.cors_origins,
            )
        return
    key_authenticator = KeyAuthenticator(ApiKeyCache(Keys(database)), settings.limits(), _tokens(settings))
    link_signer = LinkSigner(await signing_secret(database), settings.link_seconds)
    sessions = ActiveSessions(key_authenticator)
    async with CompletionWatcher(stub, database).running(), sessions.revoking():
        yield AccessControl(key_authenticator, link_signer, callers, quotas, audit, sessions, settings.cors_origins)


def _tokens(settings: AccessSettings) -> TokenAuthenticator | None:
    if not settings.jwt_issuer:
        return None
    from gateway.auth.jwt import Jwks, JwtTokens  # noqa: PLC0415  # loads cryptography only where needed

    return JwtTokens(
        Jwks(settings.jwt_jwks),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        tenant_claim=settings.jwt_tenant_claim,
        limits=settings.limits(),
    )
