"""Nothing that must stay secret stands in manifests."""

import re
from collections.abc import Iterator

from tests.manifests.deployment import Container, House, called, listed
from tests.manifests.environment import programs, told
from tests.manifests.rules.network import ARROWS, role

_SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|SECRET|CREDENTIALS)(_ID)?$")
_PASSWORD = re.compile(r"://[^/\s:@]+:[^/\s@$]+@")
_STORE_KEYS = ("hugginggpt-store", "store-keys")
"""Secrets with the keys of the store; those that kustomize makes have a hash behind their names."""


def secrets_have_no_values(house: House) -> Iterator[str]:
    for secret in house.of("Secret"):
        if secret.get("data") or secret.get("stringData"):
            yield f"{called(secret)}: has values"


def secrets_stand_nowhere_else(house: House) -> Iterator[str]:
    for container in house.containers:
        for entry in listed(container.spec, "env"):
            if _tells(entry["name"], entry.get("value")):
                yield f"{container}: {entry['name']} is a secret, and in the open"
    for config in house.of("ConfigMap"):
        for name, value in (config.get("data") or {}).items():
            if _tells(name, value):
                yield f"{called(config)}: {name} is a secret, and in the open"


def stores_have_their_keys(house: House) -> Iterator[str]:
    """Without them a pod would start, and fail each run: it has to wait for the Secret."""
    for container, _ in programs(house):
        asks = "s3" in ARROWS.get(role(container.workload), set())
        if asks and told(house, container).get("ARTIFACTS_URL", "").startswith("s3://") and not _has_keys(container):
            yield f"{container}: starts without the keys of the store"


def _has_keys(container: Container) -> bool:
    sources = [source.get("secretRef", {}) for source in listed(container.spec, "envFrom")]
    return any(source.get("name", "").startswith(_STORE_KEYS) and not source.get("optional") for source in sources)


def _tells(name: str, value: str | None) -> bool:
    path = bool(value) and str(value).startswith("/")
    return bool(value) and not path and bool(_SECRET.search(name) or _PASSWORD.search(str(value)))
