"""Verification of JSON Web Tokens (JWT) of an external issuer."""

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
from services.common.artifacts.keys import is_valid_tenant
from services.common.errors import PermissionDenied, Unauthenticated

LEEWAY_SECONDS = 30
"""Tolerated clock difference to the issuer."""

SUBJECT_CHARACTERS = 200


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
                raise _invalid_token("its signing key is not a key of the issuer")
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
            raise _invalid_token("it has expired") from None
        except InvalidAudienceError:
            raise _invalid_token("it was issued for a different audience") from None
        except InvalidIssuerError:
            raise _invalid_token("it was issued by a different issuer") from None
        except ImmatureSignatureError:
            remedy = "use it later, or have the issuer correct its clock"
            raise _invalid_token("its claim nbf (not before) is in the future", remedy) from None
        except MissingRequiredClaimError as error:
            remedy = f"have the issuer add the claim {error.claim} to its tokens"
            raise _invalid_token(f"it lacks the claim {error.claim}", remedy) from None
        except PyJWTError:
            raise _invalid_token("it is neither an API key of this gateway nor a JWT signed by the issuer") from None


def _invalid_token(why: str, remedy: str = "get a new token from the issuer") -> Unauthenticated:
    return Unauthenticated(f"invalid token: {why}", remedy=remedy)


def _claim(claims: Any, path: str) -> Any:
    for name in path.split("."):
        claims = claims.get(name) if isinstance(claims, dict) else None
    return claims
