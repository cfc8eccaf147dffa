"""Two ways to reach a server: light services are balanced and retried by gRPC, experts by their caller."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc

from services.common.tls import own
from services.common.tls_channel import Renewing
from services.common.tracing import carrying

MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message, in bytes, at both ends; gRPC's own 4 MiB is less than a photo."""

MESSAGE_LIMITS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)

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
    # Despite its name: how long connecting may take. A busy machine needs more than a moment for it.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_NO_READING_AHEAD = ("grpc.http2.bdp_probe", 0)
"""A stream that nobody reads holds one message: else gRPC takes in megabytes of it, whole runs of events."""

_NO_PROXY = ("grpc.enable_http_proxy", 0)
"""A proxy for the web, set in the environment, knows nothing of the house."""


def connect(target: str) -> grpc.aio.Channel:
    """A channel to a light service, host:port or dns:///name:port; every call on it needs a deadline.

    Balanced over all addresses of the name, by their health; waits for a server to be there; retries UNAVAILABLE.
    """
    config = ("grpc.service_config", _SERVICE_CONFIG)
    options = [*MESSAGE_LIMITS, *_BACKOFF, _NO_READING_AHEAD, _NO_PROXY, config]
    return carrying(opened(target, options))


def dial(address: str) -> grpc.aio.Channel:
    """A channel to one expert at host:port: no retry, no waiting; the caller alone decides what a failure means."""
    options = [*MESSAGE_LIMITS, *_BACKOFF, _NO_PROXY, ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    return carrying(opened(address, options))


def opened(target: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
    """A channel and nothing more; without TLS where this process has no identity."""
    if shown := own():
        named = [*options, ("grpc.ssl_target_name_override", shown.identity.name)]
        return Renewing(partial(grpc.aio.secure_channel, target, options=named), shown)
    return grpc.aio.insecure_channel(target, options=options)
