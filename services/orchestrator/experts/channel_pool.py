"""Channels to experts: one for each address, closed once it is broken or unused."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.common.channel import dial

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub


class ExpertChannel:
    """A channel to one address, and the number of calls in flight on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls = 0
        self.is_broken = False
        """A call on it failed as UNAVAILABLE; it is closed after its last call."""
        self.channel = dial(address)
        self.expert: ExpertServiceAsyncStub = ExpertServiceStub(self.channel)


class ChannelPool:
    """Channels by address; a broken channel is closed after its last call, so that the next call reconnects."""

    def __init__(self) -> None:
        self._channels: dict[str, ExpertChannel] = {}

    def acquire(self, address: str) -> ExpertChannel:
        """Returns the channel to an address, for one call."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = ExpertChannel(address)
        channel.calls += 1
        return channel

    async def release(self, channel: ExpertChannel) -> None:
        """Ends one call on the channel."""
        channel.calls -= 1
        if channel.is_broken and not channel.calls:
            await self._close(channel)

    async def close_unused(self, addresses: Collection[str]) -> None:
        """Closes idle channels to addresses that are not in `addresses`."""
        for channel in list(self._channels.values()):
            if not channel.calls and channel.address not in addresses:
                await self._close(channel)

    async def close(self) -> None:
        """Closes all channels."""
        for channel in list(self._channels.values()):
            await self._close(channel)

    async def _close(self, channel: ExpertChannel) -> None:
        if self._channels.get(channel.address) is channel:
            del self._channels[channel.address]
        await channel.channel.close()
