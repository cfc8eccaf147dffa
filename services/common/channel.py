"""Client channels: `connect` for services, which gRPC balances and retries, and `dial` for one expert replica."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self
from weakref import WeakSet

import grpc

from services.common.tls import ReloadingTlsIdentity, process_identity
from services.common.tracing import instrument_channel

MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message, in bytes, at both ends; gRPC's default of 4 MiB is smaller than many photos."""

MESSAGE_LIMITS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)

DRAIN_SECONDS = 24 * 3600.0
"""How long calls may continue on connections that were opened with the previous certificate."""

_SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": ""},
        "methodConfig": [
            {
                "name": [{}],
                "waitForReady": True,
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
)

_BACKOFF = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name, this is the timeout of one connection attempt. A busy machine may need a second for it.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_NO_READ_AHEAD = ("grpc.http2.bdp_probe", 0)
"""Makes an unread stream buffer one message; otherwise gRPC would buffer megabytes, whole runs of events."""

_NO_PROXY = ("grpc.enable_http_proxy", 0)
"""An HTTP proxy set in the environment cannot reach the services of this deployment."""


def connect(target: str) -> grpc.aio.Channel:
    """A channel to a service; every call on it needs a deadline.

    gRPC balances calls over all healthy addresses of the name, waits for a server, and retries UNAVAILABLE.

    Args:
        target: host:port or dns:///name:port.
    """
    config = ("grpc.service_config", _SERVICE_CONFIG)
    options = [*MESSAGE_LIMITS, *_BACKOFF, _NO_READ_AHEAD, _NO_PROXY, config]
    return instrument_channel(open_channel(target, options))


def dial(address: str) -> grpc.aio.Channel:
    """A channel to one expert replica at host:port, without retries or waiting: its caller handles every failure."""
    options = [*MESSAGE_LIMITS, *_BACKOFF, _NO_PROXY, ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    return instrument_channel(open_channel(address, options))


def open_channel(target: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
    """A channel with mutual TLS if this process has an identity, else without TLS."""
    if identity := process_identity():
        options = [*options, ("grpc.ssl_target_name_override", identity.name)]
        return RenewingChannel(partial(grpc.aio.secure_channel, target, options=options), identity)
    return grpc.aio.insecure_channel(target, options=options)


class RenewingChannel(grpc.aio.Channel):
    """A channel that opens a new connection for new calls once the process's certificate has been renewed.

    gRPC for Python fixes a channel's credentials when it is created, and a restart would end calls that run for hours.
    Active calls finish on the connection on which they started.

    Args:
        opener: opens a channel with the given credentials.
        identity: the certificate of this process.
    """

    def __init__(
        self, opener: Callable[[grpc.ChannelCredentials], grpc.aio.Channel], identity: ReloadingTlsIdentity
    ) -> None:
        self._opener, self._identity = opener, identity
        self._credentials = identity.credentials()
        self._channel = opener(self._credentials)
        self._draining: set[asyncio.Task[None]] = set()
        self._calls: WeakSet[grpc.aio.Call] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._draining)

    def latest(self) -> grpc.aio.Channel:
        """The channel for a new call."""
        credentials = self._identity.credentials()
        if credentials is not self._credentials:
            task = asyncio.create_task(self._channel.close(DRAIN_SECONDS), name="drain-renewed-channel")
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)
            self._credentials, self._channel = credentials, self._opener(credentials)
        return self._channel

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # as in gRPC
        return self.latest().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.latest().channel_ready()

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._on_latest("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._on_latest("unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._on_latest("stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._on_latest("stream_stream", arguments, options)

    def _on_latest(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
        """A method of a stub, each call of which uses the latest channel."""
        channel: grpc.aio.Channel | None = None
        method: Any = None

        def call(*given: Any, **named: Any) -> Any:
            nonlocal channel, method
            latest = self.latest()
            if latest is not channel:
                channel, method = latest, getattr(latest, kind)(*arguments, **options)
            made = method(*given, **named)
            self._calls.add(made)
            return made

        return call
