from pathlib import Path

import pytest

from services.common.errors import InvalidRequest
from services.selector.address_sources import AddressFolder, DnsName, SourceResult, StaticAddress, parse


def test_the_setting_says_which_source_is_meant(tmp_path: Path) -> None:
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
def test_what_is_no_address_is_refused_by_name(entry: str) -> None:
    with pytest.raises(InvalidRequest, match="host:port") as refused:
        parse(entry)
    assert "SELECTOR_EXPERTS" in refused.value.remedy


async def test_a_folder_lists_the_first_line_of_its_address_files(tmp_path: Path) -> None:
    (tmp_path / "one.address").write_text("127.0.0.1:1\nwhatever else\n")
    (tmp_path / "two.address").write_text("  127.0.0.1:2  ")
    (tmp_path / "again.address").write_text("127.0.0.1:1")
    (tmp_path / "notes.txt").write_text("127.0.0.1:3")
    (tmp_path / "coming.address").write_text("")
    assert await AddressFolder(tmp_path).read() == SourceResult(frozenset({"127.0.0.1:1", "127.0.0.1:2"}))


async def test_a_file_without_an_address_is_named_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "good.address").write_text("127.0.0.1:1")
    (tmp_path / "bad.address").write_bytes(b"\xff\xfe nonsense")
    (tmp_path / "long.address").write_text("127.0.0.1:" + 5000 * "1")
    (tmp_path / "folder.address").mkdir()
    listing = await AddressFolder(tmp_path).read()
    assert listing.addresses == frozenset({"127.0.0.1:1"})
    assert all(name in listing.error for name in ("bad.address", "long.address", "folder.address"))


async def test_a_folder_that_is_not_there_lists_nothing(tmp_path: Path) -> None:
    assert await AddressFolder(tmp_path / "later").read() == SourceResult(frozenset())


async def test_a_folder_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listing = await AddressFolder(tmp_path / "file").read()
    assert listing.addresses is None
    assert "cannot be read" in listing.error


async def test_a_name_becomes_its_addresses() -> None:
    listing = await DnsName("dns:///localhost:7").read()
    assert listing.addresses
    assert listing.addresses <= {"127.0.0.1:7", "[::1]:7"}


async def test_a_name_that_cannot_be_one_changes_nothing() -> None:
    listing = await DnsName(f"dns:///{'a' * 70}:7").read()
    assert listing.addresses is None
    assert listing.error
