"""Signatures as specified by Standard Webhooks: HMAC-SHA256 over id, time and body with a shared secret."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

PREFIX = "whsec_"

_SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature_headers(secret: str, message_id: str, at: int, body: bytes) -> Mapping[str, str]:
    """Returns the headers that authenticate a body.

    Args:
        secret: secret created by new_secret.
        message_id: id of the delivery, equal for all attempts.
        at: Unix time in seconds.
        body: body as sent.
    """
    content = f"{message_id}.{at}.".encode() + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), content, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
