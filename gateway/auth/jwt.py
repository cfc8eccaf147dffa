"""Authentication with the JWTs of one issuer, whose public keys (JWKS) are fetched and cached.

PyJWT's own PyJWKClient fetches keys with blocking I/O, which would stop the gateway's event loop.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import structlog
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAlgorithmError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidJTIError,
    InvalidSignatureError,
    InvalidSubjectError,
    MissingRequiredClaimError,
    PyJWTError,
)

from gateway.auth.identity import Identity, Limits
from services.common.call_context import is_valid_tenant
from services.common.errors import InvalidRequest, PermissionDenied, Unauthenticated

log = structlog.get_logger(__name__)

MIN_REFRESH_SECONDS = 60.0
"""Minimum time between two fetches."""

MAX_AGE_SECONDS = 3600.0
"""Maximum age of the keys; refreshed after it even if all tokens are known, because issuers withdraw keys."""

FETCH_TIMEOUT_SECONDS = 5.0
MAX_BYTES = 1_000_000

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

LEEWAY_SECONDS = 30
"""Tolerated clock difference to the issuer."""

SUBJECT_CHARACTERS = 200

_RENEW = "get a new token from the issuer"
_DEFECTS: Mapping[type[PyJWTError], tuple[str, str]] = {
    MissingRequiredClaimError: ("it lacks the claim {claim}", "have the issuer add the claim {claim} to its tokens"),
    ExpiredSignatureError: ("its claim exp is in the past: it has expired", _RENEW),
    ImmatureSignatureError: (
        "its claim {claim} is in the future",
        "use it later, or have the issuer correct its clock",
    ),
    InvalidAudienceError: (
        "its claim aud does not name this gateway: it was issued for a different audience",
        "have the issuer set aud to the value of GATEWAY_JWT_AUDIENCE",
    ),
    InvalidIssuerError: (
        "its claim iss names a different issuer",
        "get a token from the issuer in GATEWAY_JWT_ISSUER, or correct that setting",
    ),
    InvalidAlgorithmError: (
        "it is signed with an algorithm that is not accepted",
        "have the issuer sign with an algorithm in GATEWAY_JWT_ALGORITHMS",
    ),
    InvalidSignatureError: ("its signature does not match the issuer's key", _RENEW),
}
"""Defect and remedy by the class of PyJWT's error."""
_WRONG_TYPE = ("its claim {claim} has a wrong type", "have the issuer correct it: RFC 7519, section 4.1")
_FOREIGN = ("it is neither an API key of this gateway nor a JWT signed by the issuer", _RENEW)
_CLAIM = re.compile(r"\((exp|nbf|iat)\)")
"""How PyJWT's messages name the claim where the class of the error does not; they contain nothing of the token."""


class Jwks:
    """Keys of an issuer by key id.

    Args:
        location: an https URL, an http URL on this machine, or a file.
        clock: monotonic time in seconds.

    Raises:
        InvalidRequest: the location is none of these.
    """

    def __init__(self, location: str, clock: Callable[[], float] = time.monotonic) -> None:
        _check(location)
        self._location = location
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._last_fetch: float | None = None
        self._refresh_lock = asyncio.Lock()

    async def key(self, kid: str) -> PyJWK | None:
        """Returns the key with the id; for a token without an id, the only key."""
        if self._lookup(kid) is None or self._is_older(MAX_AGE_SECONDS):
            async with self._refresh_lock:
                if self._is_older(MIN_REFRESH_SECONDS) and (
                    self._lookup(kid) is None or self._is_older(MAX_AGE_SECONDS)
                ):
                    await self._fetch()
        return self._lookup(kid)

    def _lookup(self, kid: str) -> PyJWK | None:
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _is_older(self, seconds: float) -> bool:
        return self._last_fetch is None or self._clock() - self._last_fetch >= seconds

    async def _fetch(self) -> None:
        """Fetches the keys; on failure the cached keys stay in use."""
        self._last_fetch = self._clock()
        try:
            self._keys = _read(await self._content())
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError) as error:
            log.warning("cannot fetch JWKS; using cached keys", location=self._location, error=str(error))

    async def _content(self) -> bytes:
        if "://" not in self._location:
            return await asyncio.to_thread(Path(self._location).read_bytes)
        content = bytearray()
        async with (
            asyncio.timeout(FETCH_TIMEOUT_SECONDS),
            httpx.AsyncClient(follow_redirects=False) as client,
            client.stream("GET", self._location) as reply,
        ):
            reply.raise_for_status()
            async for chunk in reply.aiter_bytes():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise ValueError(f"the JWKS is larger than {MAX_BYTES} bytes")
        return bytes(content)


def _read(content: bytes) -> dict[str, PyJWK]:
    """Parses the signature keys of a JWKS; other keys are ignored."""
    found = dict[str, PyJWK]()
    for entry in json.loads(content)["keys"]:
        if (key := _public(entry)) is not None:
            found[str(entry.get("kid", ""))] = key
    if not found:
        raise ValueError("the JWKS contains no usable signature key")
    return found


def _public(entry: Mapping[str, Any]) -> PyJWK | None:
    if entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
        return None
    try:
        return PyJWK(dict(entry))
    except PyJWTError:
        return None


def _check(location: str) -> None:
    parts = urlsplit(location)
    if "://" in location and not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise InvalidRequest(
            f"cannot fetch the issuer's keys from {location}: neither https nor a file",
            remedy="set GATEWAY_JWT_JWKS to an https URL, or to the path of a file",
        )


class JwtTokens:
    """Accepts the tokens of one issuer for one audience.

    Args:
        jwks: public keys of the issuer.
        algorithms: accepted signature algorithms.
        tenant_claim: claim with the tenant's name; dots address nested objects.
        limits: limits of every subject.
    """

    def __init__(
        self, jwks: Jwks, *, issuer: str, audience: str, algorithms: Sequence[str], tenant_claim: str, limits: Limits
    ) -> None:
        self._jwks = jwks
        self._issuer = issuer
        self._audience = audience
        self._algorithms = list(algorithms)
        self._tenant_claim = tenant_claim
        self._limits = limits

    async def authenticate(self, token: str) -> Identity:
        """Returns the identity that a token proves.

        Raises:
            Unauthenticated: the token is invalid or has expired.
            PermissionDenied: TENANT, the token names no valid tenant.
        """
        claims = await self._claims(token)
        tenant, subject = _claim(claims, self._tenant_claim), str(claims["sub"])
        if not isinstance(tenant, str) or not is_valid_tenant(tenant):
            raise PermissionDenied(
                f"the token's claim {self._tenant_claim} contains no valid tenant name",
                reason="TENANT",
                remedy="have the issuer set it to a name of lower-case letters, digits and hyphens",
            )
        return Identity(tenant, f"jwt:{subject[:SUBJECT_CHARACTERS]}", limits=self._limits)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            key = await self._jwks.key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                raise _invalid_token("its signing key (kid) is not a key of the issuer", _RENEW)
            return jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except PyJWTError as error:
            raise _invalid_token(*_defect(error)) from None


def _defect(error: PyJWTError) -> tuple[str, str]:
    """Defect of a token, and its remedy. PyJWT checks claims after the signature, so that no forger learns of them."""
    claim = _claim_of(error)
    unknown = _WRONG_TYPE if claim else _FOREIGN
    defect, remedy = next((texts for kind, texts in _DEFECTS.items() if isinstance(error, kind)), unknown)
    return defect.format(claim=claim), remedy.format(claim=claim)


def _claim_of(error: PyJWTError) -> str:
    """Name of the claim that an error is about; empty for an error of the token itself."""
    match error:
        case MissingRequiredClaimError():
            return error.claim
        case InvalidSubjectError():
            return "sub"
        case InvalidJTIError():
            return "jti"
    found = _CLAIM.search(str(error))
    return found[1] if found else ""


def _invalid_token(why: str, remedy: str) -> Unauthenticated:
    return Unauthenticated(f"invalid token: {why}", remedy=remedy)


def _claim(claims: Any, path: str) -> Any:
    for name in path.split("."):
        claims = claims.get(name) if isinstance(claims, dict) else None
    return claims
