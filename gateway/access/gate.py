"""Who may come in: with keys those that show one, without them whoever reaches this machine's loopback."""

from typing import Protocol

from gateway.access.identity import OWNER, Identity


class Gate(Protocol):
    """Tells who a request comes from."""

    async def identity(self, token: str, address: str) -> Identity:
        """Whose token that is.

        Args:
            token: as it was sent; empty if none was.
            address: where the request comes from.

        Raises:
            Unauthenticated: nobody's.
            Overloaded: nobody's, and it is not the first from there.
        """
        ...


class OpenGate:
    """Asks nobody: for a gateway that only its own machine can reach."""

    async def identity(self, token: str, address: str) -> Identity:  # noqa: ARG002  # it asks for nothing
        return OWNER
