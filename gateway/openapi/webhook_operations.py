"""Request bodies, responses and examples of the webhook routes."""

from typing import Any

from gateway.openapi import examples
from gateway.openapi.document import answer

WEBHOOK_ID = "wh_5d1c2f8e7a9b40d3c6e1f2a3"

_URL = "https://example.org/hooks/hugginggpt"
_WEBHOOK = {"id": WEBHOOK_ID, "object": "webhook", "url": _URL, "name": "the shop", "created_at": 1900000000}
_SECRET = "whsec_bm90IGEgcmVhbCBzZWNyZXQsIGJ1dCBvbmUgdG8gc2hvdw=="  # noqa: S105  # an example
_DELIVERY = {
    "id": "msg_0b8f6c1d2e3a4b5c6d7e8f90",
    "run_id": examples.RUN_ID,
    "state": "delivered",
    "attempts": 1,
    "outcome": "answered 204",
    "created_at": 1900000100,
}

CREATE: dict[str, Any] = {
    "status_code": 201,
    "responses": {201: answer("The webhook, with its signing secret.", "Webhook", {**_WEBHOOK, "secret": _SECRET})},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["url"],
                        "additionalProperties": False,
                        "properties": {
                            "url": {"type": "string", "description": "An https URL."},
                            "name": {"type": "string", "maxLength": 100},
                        },
                    },
                    "example": {"url": _URL, "name": "the shop"},
                }
            },
        }
    },
}
WEBHOOKS: dict[str, Any] = {
    "responses": {200: answer("The webhooks.", "WebhookList", {"object": "list", "data": [_WEBHOOK]})}
}
WEBHOOK: dict[str, Any] = {
    "responses": {200: answer("The webhook.", "Webhook", {**_WEBHOOK, "deliveries": [_DELIVERY]})}
}
DELETED: dict[str, Any] = {
    "responses": {
        200: answer("The webhook is deleted.", "Deleted", {"id": WEBHOOK_ID, "object": "webhook", "deleted": True})
    }
}
