"""What the gateway can be told about who may come in."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode

from gateway.limits.limits import Limits

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Of signatures that others can check without being able to make them."""


def _separated(value: Any) -> Any:
    return [part for piece in value.split(",") if (part := piece.strip())] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated)]


class AccessSettings(BaseSettings):
    authentication: Literal["none", "keys"] = "none"
    """none: open to its own machine alone, and bound to loopback; keys: every request proves who it comes from."""
    cors_origins: Names = ()
    """Origins of web pages elsewhere that may ask, by comma: https://app.example."""
    requests_per_minute: int = Field(0, ge=0)
    """Of a key that has no such limit of its own, or of a token's subject; 0 means no limit, here and below."""
    concurrent_runs: int = Field(0, ge=0)
    bytes_per_day: int = Field(0, ge=0)
    tokens_per_day: int = Field(0, ge=0)
    link_seconds: int = Field(7 * 24 * 3600, gt=0)
    """How long the addresses of artifacts in answers open without a key, for browsers."""
    jwt_issuer: str = ""
    """Whose tokens are taken beside keys; empty takes none."""
    jwt_audience: str = ""
    """For whom tokens must have been issued."""
    jwt_jwks: str = ""
    """Where the issuer's public keys are: an https URL, or a file."""
    jwt_algorithms: Names = ("RS256", "ES256", "EdDSA")
    """Signatures that are taken, by comma."""
    jwt_tenant_claim: str = "tenant"
    """Which claim names the tenant; dots lead into objects."""

    def limits(self) -> Limits:
        """Of whoever has none of its own."""
        return Limits(**{name: getattr(self, name) for name in Limits.model_fields})

    @model_validator(mode="after")
    def _whole(self) -> Self:
        jwt = (self.jwt_issuer, self.jwt_audience, self.jwt_jwks)
        if any(jwt) and not all(jwt):
            raise ValueError("jwt_issuer, jwt_audience and jwt_jwks belong together: set all three")
        if any(jwt) and self.authentication == "none":
            raise ValueError("tokens are only asked for with authentication=keys")
        if unsafe := set(self.jwt_algorithms) - ALGORITHMS:
            raise ValueError(f"jwt_algorithms: {', '.join(sorted(unsafe))} cannot be taken; use {sorted(ALGORITHMS)}")
        for origin in self.cors_origins:
            scheme, _, host = origin.partition("://")
            if scheme not in {"http", "https"} or not host or set(host) & set("/*?#@ "):
                raise ValueError(f"cors_origins: {origin} is no origin; write each as https://app.example")
        return self
