"""Manifests contain no secret values, and pods wait for the Secrets they need."""

import re
from collections.abc import Iterator

from tests.manifests.deployment import Container, Manifests, display_name, get_list
from tests.manifests.environment import environment_of, programs
from tests.manifests.rules.network import ALLOWED_CALLS, identity_endpoints, role

_SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|SECRET|CREDENTIALS)(_ID)?$")
_PASSWORD = re.compile(r"://[^/\s:@]+:[^/\s@$]+@")
_STORE_KEYS = ("hugginggpt-store", "store-keys")
"""Prefixes of the Secrets with the store's credentials; kustomize appends a hash to generated names."""


def secrets_have_no_values(manifests: Manifests) -> Iterator[str]:
    for secret in manifests.of_kind("Secret"):
        if secret.get("data") or secret.get("stringData"):
            yield f"{display_name(secret)}: has values"


def secrets_are_not_inlined(manifests: Manifests) -> Iterator[str]:
    for container in manifests.containers:
        for entry in get_list(container.spec, "env"):
            if _is_secret(entry["name"], entry.get("value")):
                yield f"{container}: {entry['name']} is a secret in plain text"
    for config in manifests.of_kind("ConfigMap"):
        for name, value in (config.get("data") or {}).items():
            if _is_secret(name, value):
                yield f"{display_name(config)}: {name} is a secret in plain text"


def store_credentials_are_required(manifests: Manifests) -> Iterator[str]:
    """Without credentials a pod would start and then fail every run, so the reference must not be optional.

    A cloud identity replaces the keys.
    """
    for container, _ in programs(manifests):
        uses_store = "s3" in ALLOWED_CALLS.get(role(container.workload), set())
        if (
            uses_store
            and environment_of(manifests, container).get("ARTIFACTS_URL", "").startswith("s3://")
            and not _has_keys(container)
            and not identity_endpoints(manifests, container.workload)
        ):
            yield f"{container}: starts without the credentials of the store"


def _has_keys(container: Container) -> bool:
    sources = [source.get("secretRef", {}) for source in get_list(container.spec, "envFrom")]
    return any(source.get("name", "").startswith(_STORE_KEYS) and not source.get("optional") for source in sources)


def _is_secret(name: str, value: str | None) -> bool:
    is_path = bool(value) and str(value).startswith("/")
    return bool(value) and not is_path and bool(_SECRET.search(name) or _PASSWORD.search(str(value)))
