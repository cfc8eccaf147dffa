"""Tokens of an issuer elsewhere (JWT): checked here, against its public keys."""

from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)

from gateway.auth.identity import Identity
from gateway.auth.jwks import Jwks
from gateway.limits.limits import Limits
from services.common.artifacts.naming import is_valid_tenant
from services.common.errors import PermissionDenied, Unauthenticated

LEEWAY_SECONDS = 30
"""By which the issuer's clock may differ."""

SUBJECT_CHARACTERS = 200


class JwtTokens:
    """Takes tokens of one issuer, for one audience.

    Args:
        jwks: the issuer's keys.
        algorithms: signatures taken; each fits only the kind of key that it is made with.
        tenant_claim: which claim names the tenant; dots lead into objects.
        limits: of every subject.
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

    async def identity(self, token: str) -> Identity:
        """Whose token it is.

        Raises:
            Unauthenticated: it is none of the issuer's, or no longer good.
            PermissionDenied: TENANT, it names none.
        """
        claims = await self._claims(token)
        tenant, subject = _within(claims, self._tenant_claim), str(claims["sub"])
        if not isinstance(tenant, str) or not is_valid_tenant(tenant):
            raise PermissionDenied(
                f"the token's claim {self._tenant_claim} names no tenant",
                reason="TENANT",
                remedy="have the issuer set it to a name of small letters, digits and hyphens",
            )
        return Identity(tenant, f"jwt:{subject[:SUBJECT_CHARACTERS]}", limits=self._limits)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            key = await self._jwks.key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                raise _refused("it is signed with a key that is not the issuer's")
            return jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except ExpiredSignatureError:
            raise _refused("it has expired") from None
        except InvalidAudienceError:
            raise _refused("it was issued for another audience") from None
        except InvalidIssuerError:
            raise _refused("another issuer has issued it") from None
        except ImmatureSignatureError:
            remedy = "use it later, or have the issuer correct its clock"
            raise _refused("its claim nbf (not before) lies in the future", remedy) from None
        except MissingRequiredClaimError as error:
            remedy = f"have the issuer add the claim {error.claim} to its tokens"
            raise _refused(f"it lacks the claim {error.claim}", remedy) from None
        except PyJWTError:
            raise _refused("it is no key of this gateway's, and no token that the issuer has signed") from None


def _refused(why: str, remedy: str = "get a new one from the issuer") -> Unauthenticated:
    return Unauthenticated(f"the token cannot be taken: {why}", remedy=remedy)


def _within(claims: Any, path: str) -> Any:
    for name in path.split("."):
        claims = claims.get(name) if isinstance(claims, dict) else None
    return claims
