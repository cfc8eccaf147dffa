"""Settings of authentication, CORS, limits and JWTs."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode

from gateway.auth.identity import Limits

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Asymmetric signature algorithms: verifying a signature does not allow creating one."""


def _separated(value: Any) -> Any:
    return [part for piece in value.split(",") if (part := piece.strip())] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated)]


class AccessSettings(BaseSettings):
    authentication: Literal["none", "keys"] = "none"
    """none: no API keys; listens on loopback addresses only. keys: every request needs an API key or a JWT."""
    cors_origins: Names = ()
    """Origins of web pages that may call the API (CORS), separated by commas: https://app.example."""
    requests_per_minute: int = Field(0, ge=0)
    """Default of keys without a limit of their own, and of JWT subjects; 0: no limit, here and below."""
    concurrent_runs: int = Field(0, ge=0)
    bytes_per_day: int = Field(0, ge=0)
    tokens_per_day: int = Field(0, ge=0)
    link_seconds: int = Field(7 * 24 * 3600, gt=0)
    """Lifetime of signed artifact URLs in answers, in seconds."""
    jwt_issuer: str = ""
    """Issuer whose JWTs are accepted in addition to API keys; empty: none."""
    jwt_audience: str = ""
    """Audience that JWTs must be issued for."""
    jwt_jwks: str = ""
    """Location of the issuer's public keys: an https URL, or a file."""
    jwt_algorithms: Names = ("RS256", "ES256", "EdDSA")
    """Accepted signature algorithms, separated by commas."""
    jwt_tenant_claim: str = "tenant"
    """Claim with the tenant's name; dots address nested objects."""

    def limits(self) -> Limits:
        """Default limits of keys and JWT subjects."""
        return Limits(**{name: getattr(self, name) for name in Limits.model_fields})

    @model_validator(mode="after")
    def _whole(self) -> Self:
        jwt = (self.jwt_issuer, self.jwt_audience, self.jwt_jwks)
        if any(jwt) and not all(jwt):
            raise ValueError("jwt_issuer, jwt_audience and jwt_jwks belong together: set all three or none")
        if any(jwt) and self.authentication == "none":
            raise ValueError("jwt_issuer requires authentication=keys")
        if unsafe := set(self.jwt_algorithms) - ALGORITHMS:
            raise ValueError(
                f"jwt_algorithms: {', '.join(sorted(unsafe))} is not supported; use some of {sorted(ALGORITHMS)}"
            )
        for origin in self.cors_origins:
            scheme, _, host = origin.partition("://")
            if scheme not in {"http", "https"} or not host or set(host) & set("/*?#@ "):
                raise ValueError(f"cors_origins: {origin} is not an origin; write each as https://app.example")
        return self
