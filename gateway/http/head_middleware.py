"""HEAD wherever there is GET: the same answer without its body."""

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def offers(scope: Scope, method: str) -> bool:
    """Whether any route of the application takes the path by this method."""
    asked = {**scope, "method": method}
    return any(route.matches(asked)[0] is Match.FULL for route in scope["app"].routes)


class Heads:
    """Has HEAD served as GET where no route takes it; an answer that would go on for long ends with its head."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or offers(scope, "HEAD"):
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        head = _Head(receive, send)
        try:
            await self._app(asked, head.receive, head.send)
        finally:
            scope["route"] = asked.get("route")  # what was asked for, for those before this


class _Head:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._sent = False

    async def receive(self) -> Message:
        """As if the client left once it has the head."""
        return {"type": "http.disconnect"} if self._sent else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._sent = True
