from pathlib import Path

import pytest

from services.common.errors import InvalidRequest
from services.selector.address_sources import AddressFolder, DnsName, SourceResult, StaticAddress, parse


def test_sources_are_parsed_from_the_setting(tmp_path: Path) -> None:
    sources = parse(f" 127.0.0.1:1, [::1]:2,dns:///experts:50051,,{tmp_path},{tmp_path.as_uri()}, host:3 ")
    assert sources == [
        StaticAddress("127.0.0.1:1"),
        StaticAddress("[::1]:2"),
        DnsName("dns:///experts:50051"),
        AddressFolder(tmp_path),
        AddressFolder(tmp_path),
        StaticAddress("host:3"),
    ]


@pytest.mark.parametrize("entry", ["host", "host:", ":1", "host:0", "host:65536", "host:x", "dns:///name", "a b:1"])
def test_invalid_address_raises(entry: str) -> None:
    with pytest.raises(InvalidRequest, match="host:port") as raised:
        parse(entry)
    assert "SELECTOR_EXPERTS" in raised.value.remedy


async def test_folder_reads_the_first_line_of_address_files(tmp_path: Path) -> None:
    (tmp_path / "one.address").write_text("127.0.0.1:1\nignored\n")
    (tmp_path / "two.address").write_text("  127.0.0.1:2  ")
    (tmp_path / "again.address").write_text("127.0.0.1:1")
    (tmp_path / "notes.txt").write_text("127.0.0.1:3")
    (tmp_path / "empty.address").write_text("")
    assert await AddressFolder(tmp_path).read() == SourceResult(frozenset({"127.0.0.1:1", "127.0.0.1:2"}))


async def test_invalid_address_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.address").write_text("127.0.0.1:1")
    (tmp_path / "bad.address").write_bytes(b"\xff\xfe nonsense")
    (tmp_path / "long.address").write_text("127.0.0.1:" + 5000 * "1")
    (tmp_path / "folder.address").mkdir()
    listing = await AddressFolder(tmp_path).read()
    assert listing.addresses == frozenset({"127.0.0.1:1"})
    assert all(name in listing.error for name in ("bad.address", "long.address", "folder.address"))


async def test_missing_folder_has_no_addresses(tmp_path: Path) -> None:
    assert await AddressFolder(tmp_path / "later").read() == SourceResult(frozenset())


async def test_unreadable_folder_yields_an_error_instead_of_addresses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listing = await AddressFolder(tmp_path / "file").read()
    assert listing.addresses is None
    assert "cannot be read" in listing.error


async def test_dns_name_is_resolved() -> None:
    listing = await DnsName("dns:///localhost:7").read()
    assert listing.addresses
    assert listing.addresses <= {"127.0.0.1:7", "[::1]:7"}


async def test_invalid_dns_name_yields_an_error_instead_of_addresses() -> None:
    listing = await DnsName(f"dns:///{'a' * 70}:7").read()
    assert listing.addresses is None
    assert listing.error
