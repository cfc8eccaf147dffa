"""Keys of a gateway under test, made as the operator makes them."""

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
    """As HTTP sends it."""
    return {"authorization": f"Bearer {token}"}


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """As gRPC sends it."""
    return (("authorization", f"Bearer {token}"),)


class KeyedGateway:
    """A gateway that asks for keys, and the keys.

    Args:
        doors: to the gateway.
        database: the gateway's, over a connection of the test's own.
    """

    def __init__(self, gateway: GatewayUnderTest, database: Database) -> None:
        self.gateway = gateway
        self.keys = Keys(database)
        self.audit = Audit(database)

    async def key(self, tenant: str = "a", **terms: Any) -> tuple[Key, str]:
        """A new key, and what is sent to prove it."""
        return await self.keys.create(Terms(tenant, **terms), OPERATOR)

    async def token(self, tenant: str = "a", **terms: Any) -> str:
        return (await self.key(tenant, **terms))[1]

    async def revoke(self, key: Key) -> None:
        await self.keys.revoke(key.id, OPERATOR)


@asynccontextmanager
async def start_keyed_gateway(
    folder: Path, settings: Mapping[str, Any] | None = None, **given: Any
) -> AsyncIterator[KeyedGateway]:
    """Opens a gateway that asks for keys; the rest is as opened_doors has it."""
    own = {"authentication": "keys", **(settings or {})}
    async with (
        start_gateway(folder, settings=own, **given) as gateway,
        gateway_store(own.get("database", str(folder / "gateway.sqlite"))) as database,
    ):
        yield KeyedGateway(gateway, database)
