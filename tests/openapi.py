"""Writes gateway/openapi.json, the OpenAPI document of the HTTP API, from the routes: python -m tests.openapi."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.openapi.document import document
from tests.support.gateway import start_gateway

DOCUMENT = Path(__file__).parents[1] / "gateway" / "openapi.json"


async def rendered() -> str:
    """Returns the document of a gateway with all routes, as the committed file contains it."""
    with TemporaryDirectory() as folder:
        async with start_gateway(Path(folder)) as gateway:
            return json.dumps(document(gateway.app), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(asyncio.run(rendered()), encoding="utf-8")
