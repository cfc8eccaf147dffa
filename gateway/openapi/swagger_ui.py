"""API reference page: Swagger UI served from a package, so that it works without network access."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from gateway.json_encoder import dumps

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>HuggingGPT API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<noscript>The OpenAPI document is at <a href="/openapi.json">/openapi.json</a>.</noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""

_START = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#reference", deepLinking: true});\n'

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def router(describe: Callable[[], dict[str, Any]]) -> APIRouter:
    """Routes GET /openapi.json and GET /docs; the document is built at the first request."""
    described = cache(lambda: dumps(describe()))
    bundled = Path(str(files("fastapi_offline") / "static"))
    routes = APIRouter(include_in_schema=False)

    @routes.get("/openapi.json")
    async def description() -> Response:
        return Response(described(), media_type="application/json")

    @routes.get("/docs")
    async def page() -> Response:
        return Response(_PAGE, headers={"content-security-policy": _POLICY}, media_type="text/html")

    @routes.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    @routes.get("/docs/swagger-ui.css")
    async def style() -> Response:
        return FileResponse(bundled / "swagger-ui.css")

    @routes.get("/docs/swagger-ui-bundle.js")
    async def script() -> Response:
        return FileResponse(bundled / "swagger-ui-bundle.js", media_type="text/javascript")

    return routes
