"""Channels to experts, one per address."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.common.channel import dial

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub


class Line:
    """A channel to an address, with the calls that are under way on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls = 0
        self.broken = False
        """The server could not be reached."""
        self.channel = dial(address)
        self.expert: ExpertServiceAsyncStub = ExpertServiceStub(self.channel)


class Lines:
    """Where experts are reached; an address that could not be is dialled anew the next time, if there is one."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def take(self, address: str) -> Line:
        """The line to an address, for one call."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = Line(address)
        line.calls += 1
        return line

    async def give_back(self, line: Line) -> None:
        """The call has ended."""
        line.calls -= 1
        if line.broken and not line.calls:
            await self._hang_up(line)

    async def keep(self, addresses: Collection[str]) -> None:
        """Hangs up on all others on which nobody speaks."""
        for line in list(self._lines.values()):
            if not line.calls and line.address not in addresses:
                await self._hang_up(line)

    async def close(self) -> None:
        """Hangs up on everybody."""
        for line in list(self._lines.values()):
            await self._hang_up(line)

    async def _hang_up(self, line: Line) -> None:
        if self._lines.get(line.address) is line:
            del self._lines[line.address]
        await line.channel.close()
