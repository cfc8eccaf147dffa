"""GET /v1/models/{model}; the list stands with the catalogue."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from gateway.catalog import controller
from gateway.http.run_routes import json_response
from gateway.openai import controllers
from gateway.openapi import openai_operations


class ModelRoutes:
    """The controllers, one by one."""

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/models", tags=["openai"], default_response_class=Response)
        router.add_api_route("/{model}", self.show, methods=["GET"], **openai_operations.MODEL)
        return router

    async def show(self, model: Annotated[str, Path(description="Its id.", examples=["hugginggpt"])]) -> Response:
        """A model that OpenAI's clients can ask."""
        return json_response(controller(controllers.checked(model)))
