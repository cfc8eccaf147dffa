"""JSON of webhooks and deliveries."""

from typing import Any

from gateway.webhooks.registry import Delivery, Webhook


def render_webhook(webhook: Webhook) -> dict[str, Any]:
    """Renders a webhook without its secret."""
    ended = {"ended_at": int(webhook.ended)} if webhook.ended else {}
    about = {"url": webhook.url, "name": webhook.name, "created_at": int(webhook.created)}
    return {"id": webhook.id, "object": "webhook", **about, **ended}


def render_delivery(delivery: Delivery) -> dict[str, Any]:
    """Renders a delivery."""
    about = {"batch_id": delivery.batch_id} if delivery.batch_id else {"run_id": delivery.run_id}
    following = {"next_at": int(delivery.due)} if delivery.due else {}
    return {
        "id": delivery.id,
        **about,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "outcome": delivery.outcome,
        "created_at": int(delivery.created),
        **following,
    }
