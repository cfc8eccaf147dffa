import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence

import httpx
import pytest

from services.common.errors import InvalidRequest, ServiceError
from services.common.http_fetch.addresses import Address, AllowList, is_public
from services.common.http_fetch.fetch import FetchLimits, fetch
from services.common.http_fetch.ssrf_guard import LOOKUP_THREADS, SsrfGuard, resolve_host

CLOSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.0.1",
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1",
    "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
OPEN = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", CLOSED)
def test_non_public_address_is_denied(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OPEN)
def test_public_address_is_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


NAMES = {
    "inside.test": ["10.0.0.7"],
    "here.test": ["127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "mapped.test": ["::ffff:10.0.0.7"],
    "both.test": ["93.184.216.34", "10.0.0.7"],
    "public.test": ["93.184.216.34"],
}


async def scripted(host: str, _port: int) -> Sequence[Address]:
    return [ipaddress.ip_address(each) for each in NAMES.get(host, ())]


REFUSED = [
    # an address, plainly
    "http://127.0.0.1/", "https://127.0.0.1/", "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/", "http://[::]/", "http://0.0.0.0/", "http://0/", "http://[fd00:ec2::254]/",
    # disguised: decimal, octal, hexadecimal, short, mixed
    "http://2130706433/", "http://017700000001/", "http://0177.0.0.1/", "http://0x7f000001/", "http://0x7f.0.0.1/",
    "http://127.1/", "http://127.0.1/", "http://0x7f.1/", "http://00000177.0.0.1/", "http://127.0.0.01/",
    "http://4294967297/", "http://169.254.43518/", "http://0xA9FEA9FE/", "http://1.1.1.1.1/", "http://256.1.1.1/",
    "http://134744072/", "http://0x/",
    # inside IPv6
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://[2001::1]/",
    "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1%25lo]/", "http://[::1", "http://::1/",
    # names
    "http://localhost/", "http://LOCALHOST/", "http://inside.test/", "http://here.test/", "http://metadata.test/",
    "http://mapped.test/", "http://both.test/", "http://unknown.test/", "http://orchestrator/",
    "http://localhost./", "http://127.0.0.1./", "http://here.test./", "http://./", "http://../",
    # letters and digits of other scripts
    "http://①②⑦.⓪.⓪.①/", "http://１２７.０.０.１/", "http://127。0。0。1/", "http://١٢٧.0.0.1/", "http://ⓛocalhost/",
    "http://127．0．0．1/", "http://local\u200bhost/", "http://loc\u00adalhost/",
    # who is the host?
    "http://me@127.0.0.1/", "http://public.test@127.0.0.1/", "http://user:secret@public.test/",
    "http://public.test:80@127.0.0.1/", "http://127.0.0.1\\@public.test/", "http://public.test\\@127.0.0.1/",
    "http://127.0.0.1#@public.test/", "http://127.0.0.1?@public.test/", "http://public.test%00.inside.test/",
    "http://public.test%2f@127.0.0.1/", "http://127.0.0.1%2f.public.test/", "http://public.test\r\nhost: x/",
    "http://public.test /", "\thttp://127.0.0.1/", "http:///127.0.0.1/", "http:127.0.0.1", "http:/127.0.0.1/",
    "//127.0.0.1/", "http://", "", "127.0.0.1", "http://%31%32%37.0.0.1/", "http://-/", "http://*/",
    # ports
    "http://public.test:22/", "http://public.test:0/", "http://public.test:65536/", "http://public.test:6379/",
    "http://public.test:-1/", "http://public.test:80:80/", "http://public.test:8o/", "http://127.0.0.1:50051/",
    # other schemes
    "file:///etc/passwd", "FILE:///etc/passwd", "ftp://public.test/", "gopher://127.0.0.1:70/_x", "data:text/plain,x",
    "dict://127.0.0.1/", "jar:http://public.test/!/", "ws://public.test/", "unix:///var/run/docker.sock", "s3://bucket",
    "javascript:alert(1)", "https+unix://x/", "http://" + "a" * 9000 + ".test/",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED, ids=lambda url: ascii(url)[:50])
async def test_invalid_url_is_rejected_before_any_request(url: str, no_connections: None) -> None:
    for guard in (SsrfGuard(resolve=scripted), SsrfGuard(resolve=resolve_host)):
        with pytest.raises(ServiceError) as caught:
            async with fetch(url, guard, FetchLimits(1000)):
                pass
        assert caught.value.reason in ("URL", "URL_ADDRESS")
        assert caught.value.remedy
        assert "10.0.0.7" not in caught.value.message


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes connection attempts fail the test."""

    async def connect(*_args: object, **_kwargs: object) -> None:
        pytest.fail("a connection was tried")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)


async def test_unknown_private_and_unreachable_hosts_have_the_same_error() -> None:
    errors = set()
    for host in ("unknown.test", "inside.test", "both.test"):
        with pytest.raises(ServiceError) as caught:
            await SsrfGuard(resolve=scripted).addresses(host, 443)
        errors.add((caught.value.message.removeprefix(host), caught.value.reason, caught.value.remedy))
    assert len(errors) == 1


@pytest.mark.parametrize("url", ["https://public.test/a.png", "http://public.test:443/", "https://93.184.216.34/"])
async def test_public_addresses_pass(url: str) -> None:
    guard, parsed = SsrfGuard(resolve=scripted), httpx.URL(url)
    guard.check(parsed)
    assert [str(each) for each in await guard.addresses(parsed.host, 443)] == ["93.184.216.34"]


@pytest.mark.parametrize(
    ("entry", "url", "opened"),
    [
        ("inside.test", "http://inside.test/", True),
        ("inside.test", "http://INSIDE.test:8080/", True),
        ("inside.test:8080", "http://inside.test:8080/", True),
        ("inside.test:8080", "http://inside.test:8081/", False),
        ("inside.test:8080", "http://inside.test/", False),
        ("inside.test", "http://other.inside.test/", False),
        ("inside.test", "http://here.test/", False),
        ("10.0.0.0/8", "http://inside.test/", True),
        ("10.0.0.0/8", "http://both.test/", True),
        ("10.0.0.0/8", "http://10.1.2.3:9000/", True),
        ("10.0.0.0/8", "http://here.test/", False),
        ("10.0.0.7", "http://10.0.0.8/", False),
        ("fd00::/8", "http://[fd00::7]:9000/", True),
        ("fd00::/8", "http://10.0.0.7/", False),
    ],
)
async def test_allow_list_allows_its_entries_only(entry: str, url: str, opened: bool) -> None:
    guard, parsed = SsrfGuard(AllowList.parse([entry]), scripted), httpx.URL(url)
    try:
        guard.check(parsed)
        await guard.addresses(parsed.host, parsed.port or 80)
    except ServiceError:
        assert not opened
    else:
        assert opened


@pytest.mark.parametrize("entry", ["", "*", "http://a/", "a b", "a:0", "a:99999", "a:x", "10.0.0.1/8", "ä.test"])
def test_malformed_allow_list_entry_is_rejected(entry: str) -> None:
    with pytest.raises(InvalidRequest, match="not a host, address or network"):
        AllowList.parse([entry])


async def test_slow_dns_lookups_do_not_block_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def waiting(*_: object, **__: object) -> list[object]:
        answered.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", waiting)
    lookups = [asyncio.create_task(resolve_host("slow.test", 443)) for _ in range(2 * LOOKUP_THREADS)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(answered.is_set) is False
    finally:
        answered.set()
        await asyncio.gather(*lookups)
