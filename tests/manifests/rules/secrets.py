"""Nothing that must stay secret stands in manifests."""

import re
from collections.abc import Iterator

from tests.manifests.house import House, called, listed

_SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|SECRET|CREDENTIALS)(_ID)?$")
_PASSWORD = re.compile(r"://[^/\s:@]+:[^/\s@$]+@")


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


def _tells(name: str, value: str | None) -> bool:
    path = bool(value) and str(value).startswith("/")
    return bool(value) and not path and bool(_SECRET.search(name) or _PASSWORD.search(str(value)))
