"""HEAD support for every GET route: the same response without its body."""

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def offers(scope: Scope, method: str) -> bool:
    """Whether any route of the application supports the method for this path."""
    get_scope = {**scope, "method": method}
    return any(route.matches(get_scope)[0] is Match.FULL for route in scope["app"].routes)


class HeadMiddleware:
    """Serves HEAD as GET where no route supports it; a streaming response ends after its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or offers(scope, "HEAD"):
            await self._app(scope, receive, send)
            return
        get_scope = {**scope, "method": "GET"}
        head_response = _HeadResponse(receive, send)
        try:
            await self._app(get_scope, head_response.receive, head_response.send)
        finally:
            scope["route"] = get_scope.get("route")  # for the middleware above, which logs and traces by route


class _HeadResponse:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._sent = False

    async def receive(self) -> Message:
        """Reports a disconnect once the headers are sent, so that streams end."""
        return {"type": "http.disconnect"} if self._sent else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._sent = True
