"""A gateway that requires API keys, and keys created as an operator creates them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.auth.api_keys import Key, Keys, Terms
from gateway.auth.audit import Actor, Audit
from gateway.database import gateway_store
from services.common.database import Database
from tests.support.gateway import GatewayUnderTest, start_gateway

OPERATOR = Actor("default", "operator:test")


def bearer(token: str) -> dict[str, str]:
    """HTTP headers with an API key."""
    return {"authorization": f"Bearer {token}"}


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of gRPC calls with an API key."""
    return (("authorization", f"Bearer {token}"),)


class KeyedGateway:
    """A gateway that requires API keys.

    Args:
        gateway: The running gateway.
        database: Separate connection to the gateway's database.
    """

    def __init__(self, gateway: GatewayUnderTest, database: Database) -> None:
        self.gateway = gateway
        self.keys = Keys(database)
        self.audit = Audit(database)

    async def key(self, tenant: str = "a", **terms: Any) -> tuple[Key, str]:
        """Creates a key; returns it and the token that clients send."""
        return await self.keys.create(Terms(tenant, **terms), OPERATOR)

    async def token(self, tenant: str = "a", **terms: Any) -> str:
        return (await self.key(tenant, **terms))[1]

    async def revoke(self, key: Key) -> None:
        await self.keys.revoke(key.id, OPERATOR)


@asynccontextmanager
async def start_keyed_gateway(
    folder: Path, settings: Mapping[str, Any] | None = None, **given: Any
) -> AsyncIterator[KeyedGateway]:
    """Starts a gateway that requires API keys; other arguments are those of `start_gateway`."""
    values = {"authentication": "keys", **(settings or {})}
    async with (
        start_gateway(folder, settings=values, **given) as gateway,
        gateway_store(values.get("database", str(folder / "gateway.sqlite"))) as database,
    ):
        yield KeyedGateway(gateway, database)
