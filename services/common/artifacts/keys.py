"""Keys of artifacts in a store: the tenant's name and the SHA-256 of the content."""

import re

from services.common.errors import InvalidRequest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

ARTIFACT_KEY = re.compile(rf"({_TENANT.pattern})/({_DIGEST.pattern})(?:\.json)?")
"""Matches the keys of artifacts and of their metadata; the groups are tenant and digest."""


def artifact_key(tenant: str, sha256: str) -> str:
    """The key of an artifact.

    Raises:
        InvalidRequest: the digest or the tenant's name is malformed.
    """
    if not _DIGEST.fullmatch(sha256):
        raise InvalidRequest(
            "an artifact is named by 64 lower-case hexadecimal digits", remedy="use the sha256 of an artifact"
        )
    check_tenant(tenant)
    return f"{tenant}/{sha256}"


def is_valid_tenant(name: str) -> bool:
    """Whether a tenant's name is up to 63 lower-case letters, digits and hyphens, and does not start with a hyphen."""
    return _TENANT.fullmatch(name) is not None


def check_tenant(tenant: str) -> None:
    """Raises InvalidRequest for a malformed name."""
    if not is_valid_tenant(tenant):
        raise InvalidRequest("a tenant is named by lower-case letters, digits and hyphens", remedy="check the tenant")
