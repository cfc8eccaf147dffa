"""Where artifacts stand in a store."""

import re

from services.common.errors import InvalidRequest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

ARTIFACT = re.compile(rf"({_TENANT.pattern})/({_DIGEST.pattern})(?:\.json)?")
"""Matches the keys of artifacts and of their sidecars; the groups are tenant and digest."""


def key_of(tenant: str, sha256: str) -> str:
    """The key of an artifact.

    Raises:
        InvalidRequest: it is no digest or no tenant.
    """
    if not _DIGEST.fullmatch(sha256):
        raise InvalidRequest(
            "an artifact is named by 64 lower-case hexadecimal digits", remedy="use the sha256 of an artifact"
        )
    check_tenant(tenant)
    return f"{tenant}/{sha256}"


def is_tenant(name: str) -> bool:
    """Whether a tenant can be called so: up to 63 lower-case letters, digits and hyphens, no hyphen first."""
    return _TENANT.fullmatch(name) is not None


def check_tenant(tenant: str) -> None:
    if not is_tenant(tenant):
        raise InvalidRequest("a tenant is named by lower-case letters, digits and hyphens", remedy="check the tenant")
