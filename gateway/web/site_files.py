"""Serves the web page's static files from the package, without a build step and without external resources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.app import offers
from gateway.http.problem import RouteNotFound

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Forbids inline code, external resources and the conversion of strings to markup."""

_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".html": "text/html",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}

_PAGE = "index.html"
_PAGE_HEADERS: Mapping[str, str] = {"content-security-policy": _POLICY, "cache-control": "no-cache"}
_FOREVER = "public, max-age=31536000, immutable"
_SITE_URL = re.compile(rb'"/web/(?=[\w.-]+")')


@dataclass(frozen=True)
class Site:
    """The page's files by name.

    Their URLs contain a digest of all files, so browsers cache them forever and never mix two versions.
    """

    contents: Mapping[str, bytes]

    @classmethod
    def packaged(cls) -> "Site":
        return cls({file.name: file.read_bytes() for file in _files(files("gateway.web") / "site")})

    @cached_property
    def version(self) -> str:
        return sha256(b"".join(name.encode() + self.contents[name] for name in sorted(self.contents))).hexdigest()[:16]

    @cached_property
    def page(self) -> bytes:
        """The page with versioned URLs and preload hints for all modules."""
        modules = (f'<link rel="modulepreload" href="/web/{name}">' for name in sorted(self.contents) if _module(name))
        page = self.contents[_PAGE].replace(b"</head>", "\n".join((*modules, "</head>")).encode())
        return _SITE_URL.sub(f'"/web/{self.version}/'.encode(), page)

    def router(self) -> APIRouter:
        """Routes GET and HEAD of / and /web/{version}/{name}."""
        routes = APIRouter(include_in_schema=False)
        routes.add_api_route("/", self._home, methods=["GET", "HEAD"])
        routes.add_api_route("/web/{version}/{name}", self._file, methods=["GET", "HEAD"])
        return routes

    def not_found(self) -> Response:
        """The page for an address that no route has; it says so and links to its start."""
        return Response(self.page, 404, _PAGE_HEADERS, "text/html")

    async def _home(self, request: Request) -> Response:
        headers = {**_PAGE_HEADERS, "etag": f'"{self.version}"'}
        if f'"{self.version}"' in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.page, headers=headers, media_type="text/html")

    async def _file(self, version: str, name: str) -> Response:
        if version != self.version or name not in self.contents or name == _PAGE:
            raise RouteNotFound("the page has no such file", remedy="reload the page")
        headers = {"content-security-policy": "default-src 'none'", "cache-control": _FOREVER}
        return Response(self.contents[name], headers=headers, media_type=_TYPES[name[name.rindex(".") :]])


class UnknownAddressMiddleware:
    """Shows the page to a browser that navigates to an address that no route has; other clients get the API's error.

    Args:
        app: the next ASGI application.
        routes: the application whose routes are known.
        site: the page.
    """

    def __init__(self, app: ASGIApp, routes: FastAPI, site: Site) -> None:
        self._app = app
        self._routes = routes
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_unknown = _is_navigation(scope) and not offers({**scope, "app": self._routes}, "GET")
        await (self._site.not_found() if is_unknown else self._app)(scope, receive, send)


def _is_navigation(scope: Scope) -> bool:
    """Whether a browser opens an address, rather than a client calling the API."""
    return (
        scope["type"] == "http"
        and scope["method"] in {"GET", "HEAD"}
        and not scope["path"].startswith("/v1/")
        and "text/html" in Headers(scope=scope).get("accept", "")
    )


def _files(folder: Traversable) -> list[Traversable]:
    return [file for file in folder.iterdir() if file.is_file()]


def _module(name: str) -> bool:
    return name.endswith(".js") and name != "theme_init.js"
