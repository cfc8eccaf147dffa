"""Verification of JWTs, and caching of the issuer's keys."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ValidationError

from gateway.auth.identity import Limits
from gateway.auth.jwt import MAX_AGE_SECONDS, MIN_REFRESH_SECONDS, Jwks, JwtTokens
from gateway.auth.settings import AccessSettings
from services.common.errors import InvalidRequest, PermissionDenied, Unauthenticated
from tests.support.clock import Clock

ISSUER, AUDIENCE = "https://issuer.example", "hugginggpt"
LIMITS = Limits(requests_per_minute=7)


class Issuer:
    """Signs tokens, and publishes its keys in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.keys: dict[str, Any] = {"k1": rsa.generate_private_key(65537, 2048)}
        self.publish()

    def publish(self, *more: dict[str, Any]) -> None:
        named = [{**_jwk(key), "kid": kid, "use": "sig"} for kid, key in self.keys.items()]
        self.file.write_text(json.dumps({"keys": [*named, *more]}))

    def token(self, kid: str = "k1", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": time.time() + 60, "tenant": "shop", **claims}
        payload = {name: value for name, value in given.items() if value is not None}
        key = self.keys[kid]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(payload, key, algorithm, headers={"kid": kid, **(headers or {})})


def _jwk(key: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return kind.to_jwk(key.public_key(), as_dict=True)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "jwks.json")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000)


@pytest.fixture
def tokens(issuer: Issuer, clock: Clock) -> JwtTokens:
    return of(issuer, clock)


def of(issuer: Issuer, clock: Clock, claim: str = "tenant") -> JwtTokens:
    return JwtTokens(
        Jwks(str(issuer.file), clock),
        issuer=ISSUER,
        audience=AUDIENCE,
        algorithms=AccessSettings().jwt_algorithms,
        tenant_claim=claim,
        limits=LIMITS,
    )


async def test_token_proves_tenant_and_subject(tokens: JwtTokens, issuer: Issuer) -> None:
    identity = await tokens.authenticate(issuer.token())
    assert identity.tenant == "shop"
    assert identity.key_id == "jwt:anna"
    assert identity.admin is False
    assert identity.limits == LIMITS


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"nbf": 10_000_000_000},
        {"sub": None},
    ],
    ids=str,
)
async def test_token_with_wrong_claims_is_rejected(tokens: JwtTokens, issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(issuer.token(**claims))


@pytest.mark.parametrize("claim", ["exp", "iss", "aud", "sub"])
async def test_error_names_the_missing_claim(tokens: JwtTokens, issuer: Issuer, claim: str) -> None:
    lacking: dict[str, Any] = {claim: None}
    with pytest.raises(Unauthenticated) as raised:
        await tokens.authenticate(issuer.token(**lacking))
    assert f"it lacks the claim {claim}" in raised.value.message
    assert claim in raised.value.remedy


@pytest.mark.parametrize(
    ("claims", "defect", "remedy"),
    [
        ({"exp": 1_000_000_000}, "its claim exp is in the past", "new token"),
        ({"exp": "soon"}, "its claim exp has a wrong type", "RFC 7519"),
        ({"nbf": 10_000_000_000}, "its claim nbf is in the future", "clock"),
        ({"nbf": "now"}, "its claim nbf has a wrong type", "RFC 7519"),
        ({"iat": 10_000_000_000}, "its claim iat is in the future", "clock"),
        ({"iat": "now"}, "its claim iat has a wrong type", "RFC 7519"),
        ({"aud": "another"}, "its claim aud does not name this gateway", "GATEWAY_JWT_AUDIENCE"),
        ({"aud": [1]}, "its claim aud does not name this gateway", "GATEWAY_JWT_AUDIENCE"),
        ({"iss": "https://other.example"}, "its claim iss names a different issuer", "GATEWAY_JWT_ISSUER"),
        ({"sub": 7}, "its claim sub has a wrong type", "RFC 7519"),
        ({"jti": 7}, "its claim jti has a wrong type", "RFC 7519"),
    ],
    ids=str,
)
async def test_error_names_the_wrong_claim(
    tokens: JwtTokens, issuer: Issuer, claims: dict[str, Any], defect: str, remedy: str
) -> None:
    with pytest.raises(Unauthenticated) as raised:
        await tokens.authenticate(issuer.token(**claims))
    assert defect in raised.value.message
    assert remedy in raised.value.remedy


async def test_error_repeats_nothing_of_the_token_or_the_settings(tokens: JwtTokens, issuer: Issuer) -> None:
    token = issuer.token(aud="another", iss="https://other.example", sub="anna")
    with pytest.raises(Unauthenticated) as raised:
        await tokens.authenticate(token)
    text = raised.value.message + raised.value.remedy
    assert not {word for word in ("another", "other.example", "anna", ISSUER, AUDIENCE, token) if word in text}


async def test_error_of_a_changed_token_is_about_its_signature(tokens: JwtTokens, issuer: Issuer) -> None:
    head, _, signature = issuer.token().split(".")
    _, claims, _ = issuer.token(aud="another").split(".")
    with pytest.raises(Unauthenticated, match="its signature does not match"):
        await tokens.authenticate(f"{head}.{claims}.{signature}")


def unsigned(issuer: Issuer) -> str:
    return jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "tenant": "shop", "exp": 2e10}, "", "none")


def signed_with_the_public_key(issuer: Issuer) -> str:
    """A token signed with the public key as a shared secret."""
    public = issuer.keys["k1"].public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = public.public_bytes(serialization.Encoding.PEM, form)
    head, body = (
        jwt.utils.base64url_encode(json.dumps(part).encode())
        for part in (
            {"alg": "HS256", "kid": "k1"},
            {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "tenant": "a", "exp": 2e10},
        )
    )
    key = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = jwt.utils.base64url_encode(key.sign(head + b"." + body, secret))
    return b".".join((head, body, signature)).decode()


def signed_by_another(issuer: Issuer) -> str:
    other = Issuer(issuer.file.with_name("other.json"))
    return other.token()


def with_other_algorithm(issuer: Issuer) -> str:
    return issuer.token(headers={"alg": "PS256"})


def cut(issuer: Issuer) -> str:
    return issuer.token()[:-3]


@pytest.mark.parametrize("forged", [unsigned, signed_with_the_public_key, signed_by_another, with_other_algorithm, cut])
async def test_forged_token_is_rejected(tokens: JwtTokens, issuer: Issuer, forged: Callable[[Issuer], str]) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(forged(issuer))


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "....", "e30.e30.e30", "\x00"])
async def test_malformed_token_is_rejected(tokens: JwtTokens, text: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(text)


@pytest.mark.parametrize("tenant", [None, "", "../other", "a.b", "a_b", "A B", 7, ["shop"]])
async def test_token_without_valid_tenant_is_rejected(tokens: JwtTokens, issuer: Issuer, tenant: Any) -> None:
    with pytest.raises(PermissionDenied):
        await tokens.authenticate(issuer.token(tenant=tenant))


async def test_tenant_claim_may_be_nested(issuer: Issuer, clock: Clock) -> None:
    tokens = of(issuer, clock, "org.team")
    assert (await tokens.authenticate(issuer.token(org={"team": "deep"}))).tenant == "deep"
    with pytest.raises(PermissionDenied):
        await tokens.authenticate(issuer.token(org="deep"))


async def test_unknown_key_is_fetched_at_most_once_a_minute(tokens: JwtTokens, issuer: Issuer, clock: Clock) -> None:
    await tokens.authenticate(issuer.token())
    issuer.keys["k2"] = ec.generate_private_key(ec.SECP256R1())
    issuer.publish()
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(issuer.token("k2"))
    clock.now += MIN_REFRESH_SECONDS
    assert (await tokens.authenticate(issuer.token("k2"))).tenant == "shop"


async def test_cached_jwks_is_used_during_issuer_outage(tokens: JwtTokens, issuer: Issuer, clock: Clock) -> None:
    old = issuer.token()
    await tokens.authenticate(old)
    issuer.file.unlink()
    clock.now += 2 * MAX_AGE_SECONDS
    await tokens.authenticate(old)
    issuer.keys = {"k2": ec.generate_private_key(ec.SECP256R1())}
    issuer.publish()
    clock.now += MAX_AGE_SECONDS
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(old)


async def test_keys_of_other_types_are_ignored(tokens: JwtTokens, issuer: Issuer) -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ1Ng", "kid": "s", "alg": "HS256"}
    issuer.publish(secret, {"kty": "odd", "kid": "o"}, {"kty": "RSA", "use": "enc", "kid": "e"})
    assert (await tokens.authenticate(issuer.token())).tenant == "shop"
    forged = jwt.encode({"iss": ISSUER}, "secret-secret-secret-secret-123456", "HS256", headers={"kid": "s"})
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(forged)


def test_insecure_jwks_location_is_rejected() -> None:
    for location in ("http://issuer.example/jwks", "ftp://issuer.example/jwks", "file:///etc/jwks"):
        with pytest.raises(InvalidRequest):
            Jwks(location)


@pytest.mark.parametrize(
    "given",
    [
        {"authentication": "keys", "jwt_issuer": ISSUER},
        {"jwt_issuer": ISSUER, "jwt_audience": "a", "jwt_jwks": "f"},
        {"jwt_algorithms": "RS256,HS256"},
        {"jwt_algorithms": "none"},
        {"cors_origins": "*"},
        {"cors_origins": "https://app.example/"},
        {"cors_origins": "app.example"},
    ],
    ids=str,
)
def test_insecure_settings_are_rejected(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        AccessSettings.model_validate(given)
