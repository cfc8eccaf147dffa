"""Channels to experts by address."""

import grpc

from services.orchestrator.experts.channel_pool import ChannelPool

ADDRESS = "127.0.0.1:1"


async def test_calls_of_one_address_share_a_channel() -> None:
    pool = ChannelPool()
    assert pool.acquire(ADDRESS) is pool.acquire(ADDRESS)
    await pool.close()


async def test_broken_channel_is_closed_after_its_last_call() -> None:
    pool = ChannelPool()
    channel, _ = pool.acquire(ADDRESS), pool.acquire(ADDRESS)
    channel.is_broken = True
    await pool.release(channel)
    assert channel.channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await pool.release(channel)
    assert channel.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert pool.acquire(ADDRESS) is not channel
    await pool.close()


async def test_idle_channel_to_an_unused_address_is_closed() -> None:
    pool = ChannelPool()
    channel = pool.acquire(ADDRESS)
    await pool.close_unused(())
    assert pool.acquire(ADDRESS) is channel
    await pool.release(channel)
    await pool.release(channel)
    await pool.close_unused((ADDRESS,))
    assert pool.acquire(ADDRESS) is channel
    await pool.release(channel)
    await pool.close_unused(())
    assert channel.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    await pool.close()
