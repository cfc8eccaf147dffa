"""Webhooks over HTTP: those of the caller's own tenant."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from gateway.auth.audit import actor
from gateway.json_encoder import dumps
from gateway.json_text import checked_text, loads
from gateway.openapi import webhook_operations
from gateway.run_request import limited
from gateway.webhooks.registry import Webhooks
from gateway.webhooks.rendering import delivered, shown
from services.common.call_context import current
from services.common.errors import InvalidRequest

BODY_BYTES = 100_000

WebhookId = Annotated[str, Path(description="The webhook's id.", examples=[webhook_operations.WEBHOOK_ID])]


class WebhookRoutes:
    """What one can do with webhooks."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create, methods=["POST"], **webhook_operations.CREATE)
        add("", self.index, methods=["GET"], **webhook_operations.WEBHOOKS)
        add("/{webhook_id}", self.show, methods=["GET"], **webhook_operations.WEBHOOK)
        add("/{webhook_id}", self.delete, methods=["DELETE"], **webhook_operations.DELETED)
        return router

    async def create(self, request: Request) -> Response:
        """Has a URL told of every run and batch of the tenant that ends from now on.

        It is sent `{"type": "run.ended", "timestamp": …, "data": {"run_id": …, "state": …, "end_time": …, "usage": …,
        "links": …}}`, or `{"type": "batch.ended", "timestamp": …, "data": {"batch_id": …, "round": …, "state": …,
        "pipeline": …, "counts": …, "create_time": …, "end_time": …, "links": …}}`, signed as Standard Webhooks say,
        with the secret that is told here and never again. Items of a batch are told of by the batch alone, and a batch
        that is resumed ends once more, in the next round. What is not answered with 2xx is sent again, up to six times
        in seven and a half hours; a 410 ends the webhook. Ends under the data policy `local` are told only to hosts
        that the operator has named.
        """
        body = loads(await limited(request.stream(), BODY_BYTES, "the body"))
        if not isinstance(body, dict) or "url" not in body or body.keys() - {"url", "name"}:
            remedy = 'send {"url": "https://…", "name": "…"}'
            raise InvalidRequest("the body is no webhook", remedy=remedy, port="url")
        url, name = (checked_text(body.get(field, ""), field) for field in ("url", "name"))
        made = await self._webhooks.create(current().tenant, url, name, actor())
        return _json({**shown(made), "secret": made.secret}, 201)

    async def index(self) -> Response:
        """Lists the webhooks, the oldest first."""
        return _json({"object": "list", "data": [shown(each) for each in await self._webhooks.list(current().tenant)]})

    async def show(self, webhook_id: WebhookId) -> Response:
        """A webhook, and what it was told lately."""
        found = await self._webhooks.get(webhook_id, current().tenant)
        told = [delivered(each) for each in await self._webhooks.deliveries(found.id)]
        return _json({**shown(found), "deliveries": told})

    async def delete(self, webhook_id: WebhookId) -> Response:
        """Ends a webhook at once; what it was still to be told is not sent."""
        await self._webhooks.delete(webhook_id, actor(), current().tenant)
        return _json({"id": webhook_id, "object": "webhook", "deleted": True})


def _json(content: Any, status: int = 200) -> Response:
    return Response(dumps(content), status, media_type="application/json")
