"""Signatures of Standard Webhooks: HMAC-SHA256 over id, time and body, by a secret that the receiver has, too."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

PREFIX = "whsec_"

_SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signed(secret: str, message_id: str, at: int, body: bytes) -> Mapping[str, str]:
    """The headers that prove who sends a body.

    Args:
        secret: as new_secret gives it.
        message_id: the same whenever the same is sent again.
        at: seconds since the epoch.
        body: as it is sent.
    """
    content = f"{message_id}.{at}.".encode() + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), content, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
