"""Routes of /v1/webhooks, for the caller's tenant."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from gateway.auth.audit import current_actor
from gateway.http.json_body import read_limited
from gateway.json_encoder import dumps
from gateway.json_text import checked_text, loads
from gateway.openapi import examples, operations
from gateway.webhooks.registry import Webhooks, render_delivery, render_webhook
from services.common.call_context import current
from services.common.errors import InvalidRequest

BODY_BYTES = 100_000

WebhookId = Annotated[str, Path(description="Id of the webhook.", examples=[examples.WEBHOOK_ID])]


class WebhookRoutes:
    """Creates, lists, shows and deletes webhooks."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create_webhook, methods=["POST"], **operations.CREATE_WEBHOOK)
        add("", self.list_webhooks, methods=["GET"], **operations.LIST_WEBHOOKS)
        add("/{webhook_id}", self.get_webhook, methods=["GET"], **operations.GET_WEBHOOK)
        add("/{webhook_id}", self.delete_webhook, methods=["DELETE"], **operations.DELETE_WEBHOOK)
        return router

    async def create_webhook(self, request: Request) -> Response:
        """Registers a URL that is notified whenever a run or batch of the tenant ends.

        The body is `{"type": "run.ended", "timestamp": …, "data": {"run_id": …, "state": …, "end_time": …, "usage": …,
        "links": …}}` or `{"type": "batch.ended", "timestamp": …, "data": {"batch_id": …, "round": …, "state": …,
        "pipeline": …, "counts": …, "create_time": …, "end_time": …, "links": …}}`. It is signed as specified by
        Standard Webhooks, with the secret that only this response contains. Items of a batch cause no notifications.
        A resumed batch ends again, in the next round. A delivery without a 2xx response is retried, up to six attempts
        within seven and a half hours; a 410 response ends the webhook. With the data policy `local`, ends are only
        reported to hosts that the operator has configured.
        """
        body = loads(await read_limited(request.stream(), BODY_BYTES, "the body"))
        if not isinstance(body, dict) or "url" not in body or body.keys() - {"url", "name"}:
            remedy = 'send {"url": "https://…", "name": "…"}'
            raise InvalidRequest("the body is not a webhook with a url and an optional name", remedy=remedy, port="url")
        url, name = (checked_text(body.get(field, ""), field) for field in ("url", "name"))
        webhook = await self._webhooks.create(current().tenant, url, name, current_actor())
        return _json({**render_webhook(webhook), "secret": webhook.secret}, 201)

    async def list_webhooks(self) -> Response:
        """Lists the tenant's webhooks, oldest first."""
        return _json(
            {"object": "list", "data": [render_webhook(each) for each in await self._webhooks.list(current().tenant)]}
        )

    async def get_webhook(self, webhook_id: WebhookId) -> Response:
        """Returns a webhook with its most recent deliveries."""
        webhook = await self._webhooks.get(webhook_id, current().tenant)
        deliveries = [render_delivery(each) for each in await self._webhooks.deliveries(webhook.id)]
        return _json({**render_webhook(webhook), "deliveries": deliveries})

    async def delete_webhook(self, webhook_id: WebhookId) -> Response:
        """Deletes a webhook at once; its pending deliveries are dropped."""
        await self._webhooks.delete(webhook_id, current_actor(), current().tenant)
        return _json({"id": webhook_id, "object": "webhook", "deleted": True})


def _json(content: Any, status: int = 200) -> Response:
    return Response(dumps(content), status, media_type="application/json")
