from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.uploads import Allowance, store_file
from gateway.http.multipart import MAX_PARTS, parts
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import NAME_CHARACTERS, clean_name
from services.common.errors import InvalidRequest
from services.common.media_types import media_type


def box(kind: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + kind + content


def matroska(kind: bytes, tracks: bytes = b"") -> bytes:
    return b"\x1a\x45\xdf\xa3\xa3\x42\x86\x81\x01\x42\x82\x88" + kind + b"\x18\x53\x80\x67" + tracks


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
PDF = b"%PDF-1.7\n1 0 obj\n"
OGG = b"OggS" + bytes(24)
MP3 = b"\xff\xfb\x90\x64" + bytes(100)

KNOWN = [
    ("a.png", PNG, "image/png"),
    ("a.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
    ("a.JPEG", b"\xff\xd8\xff\xdb\0", "image/jpeg"),
    ("a.gif", b"GIF89a\x10\0\x10\0\xf0\0\0", "image/gif"),
    ("a.webp", b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
    ("a.bmp", b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0", "image/bmp"),
    ("a.tiff", b"II*\0\x08\0\0\0", "image/tiff"),
    ("a.tif", b"MM\0*\0\0\0\x08", "image/tiff"),
    ("a.heic", box(b"ftyp", b"heic\0\0\0\0mif1heic"), "image/heic"),
    ("a.heif", box(b"ftyp", b"mif1\0\0\0\0mif1heic"), "image/heic"),
    ("a.avif", box(b"ftyp", b"mif1\0\0\0\0mif1avif"), "image/avif"),
    ("a.svg", b'<?xml version="1.0"?>\n<!-- <a> -->\n<svg xmlns="x">', "image/svg+xml"),
    ("a.pdf", PDF, "application/pdf"),
    ("a.wav", b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
    ("a.mp3", MP3, "audio/mpeg"),
    ("a.mp3", b"ID3\x04\0\0\0\0\0\x0a" + bytes(20), "audio/mpeg"),
    ("a.aac", b"\xff\xf1\x50\x80" + bytes(20), "audio/aac"),
    ("a.flac", b"fLaC\0\0\0\x22", "audio/flac"),
    ("a.ogg", OGG + b"\x01vorbis", "audio/ogg"),
    ("a.opus", OGG + b"OpusHead", "audio/ogg"),
    ("a.ogv", OGG + b"\x80theora", "video/ogg"),
    ("a.m4a", box(b"ftyp", b"M4A \0\0\0\0M4A mp42"), "audio/mp4"),
    ("a.m4a", box(b"ftyp", b"isom\0\0\0\0isommp41"), "audio/mp4"),
    ("a.mp4", box(b"ftyp", b"isom\0\0\0\0isommp41"), "video/mp4"),
    ("a.mp4", box(b"ftyp", b"dash\0\0\0\0iso6mp41"), "video/mp4"),
    ("a.mov", box(b"ftyp", b"qt  \0\0\0\0qt  "), "video/quicktime"),
    ("a.mov", box(b"moov", bytes(20)), "video/quicktime"),
    ("a.webm", matroska(b"webm", b"V_VP9 A_OPUS"), "video/webm"),
    ("a.mkv", matroska(b"matroska"), "video/x-matroska"),
    ("recording", matroska(b"webm", b"A_OPUS"), "audio/webm"),
    ("a.avi", b"RIFF\x24\0\0\0AVI LIST", "video/x-msvideo"),
    ("a.aiff", b"FORM\0\0\0\x24AIFF", "audio/aiff"),
    ("a.zip", b"PK\3\4" + bytes(20), "application/zip"),
    ("a.docx", b"PK\3\4" + bytes(20), "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("a.gz", b"\x1f\x8b\x08\0", "application/gzip"),
    ("a.csv", b"a,b\n1,2\n", "text/csv"),
    ("a.json", b' {"a": 1}', "application/json"),
    ("a.json", b'"text"', "application/json"),
    ("a.txt", "Grüße\r\n\t\f".encode(), "text/plain"),
    ("a.txt", b"\xef\xbb\xbfwith a mark", "text/plain"),
    ("a.md", b"# Title\n<html> is a tag\n", "text/markdown"),
    ("a.html", b"<!-- x --><!DOCTYPE html><html>", "text/html"),
    ("a.html", b"<p>a fragment", "text/html"),
    ("a.xml", b'<?xml version="1.0"?><a/>', "application/xml"),
    ("a.txt", b"<!doctype html><script>", "text/plain"),
    ("script", b"<!doctype html><script>", "text/html"),
    ("notes", b"just words", "text/plain"),
    ("a.bin", bytes(range(256)), "application/octet-stream"),
    ("a.txt", b"BM is a ticket", "text/plain"),
    ("a.txt", b"ID3 is a tag", "text/plain"),
    ("a.txt", b"GIF89a is a format", "text/plain"),
    ("a.txt", b"RIFF and raff and WAVE", "text/plain"),
]


@pytest.mark.parametrize(("name", "content", "expected"), KNOWN, ids=lambda side: str(side)[:24])
def test_media_type_is_determined_by_content(name: str, content: bytes, expected: str) -> None:
    assert media_type(name, content, whole=True) == expected


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("photo.png", PDF, "FILE_TYPE"),
        ("photo.jpg", PNG, "FILE_TYPE"),
        ("notes.txt", PNG, "FILE_TYPE"),
        ("speech.wav", MP3, "FILE_TYPE"),
        ("speech.mp3", b"just words", "FILE_TYPE"),
        ("speech.mp3", "words".encode("utf-16"), "FILE_TYPE"),
        ("drawing.svg", b"just words", "FILE_TYPE"),
        ("film.mp4", bytes(100), "FILE_TYPE"),
        ("data.json", b"just words", "FILE_TYPE"),
        ("page.html", b"just words", "FILE_TYPE"),
        ("notes.txt", b"caf\xe9 cr\xe8me", "NOT_UTF8"),
        ("notes.txt", "words".encode("utf-16"), "NOT_UTF8"),
        ("table.csv", b"a,b\0,c", "NOT_UTF8"),
        ("notes.txt", b"cut in a letter \xc3", "NOT_UTF8"),
    ],
    ids=lambda side: str(side)[:24],
)
def test_file_that_contradicts_its_name_is_rejected(name: str, content: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        media_type(name, content, whole=True)
    assert caught.value.reason == reason
    assert caught.value.remedy


def test_character_split_at_head_end_is_accepted() -> None:
    assert media_type("a.txt", b"gr\xc3", whole=False) == "text/plain"


def test_hostile_head_is_sniffed_quickly() -> None:
    for head in (b"<?xml?>" * 600, b"<!-- -->" * 500, b"<svg" * 1000, b" " * 4096):
        assert media_type("", head, whole=False)


@pytest.mark.parametrize(
    ("sent", "stored_name"),
    [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\photo.png", "photo.png"),
        ("a\r\nContent-Type: b.png", "aContent-Type: b.png"),
        ("exe.\u202egnp", "exe.gnp"),
        ("null\0byte.txt", "nullbyte.txt"),
        ("..", "file"),
        ("", "file"),
        ("x" * 500 + ".png", "x" * (NAME_CHARACTERS - 4) + ".png"),
        ("x" * 500, "x" * NAME_CHARACTERS),
        ("写真 1.png", "写真 1.png"),
    ],
    ids=lambda side: ascii(side)[:30],
)
def test_file_name_is_stripped_of_path(sent: str, stored_name: str) -> None:
    assert clean_name(sent) == stored_name


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path.as_uri())


async def chunked(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def store_upload(store: ArtifactStore, name: str, content: bytes, limit: int = 10**6) -> Artifact:
    return await store_file(store, "default", name, chunked(content), Allowance(limit))


@pytest.mark.parametrize("size", [1, 999, 4096, 4097, 100_000])
async def test_stored_file_has_the_uploaded_content(store: ArtifactStore, size: int) -> None:
    content = ("ü" * size).encode()
    artifact = await store_upload(store, "a.txt", content)
    assert artifact.media_type == "text/plain"
    assert artifact.size_bytes == len(content)
    assert artifact.name == "a.txt"
    assert await store.get("default", artifact.sha256) == content


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "EMPTY_FILE"),
        ("a.txt", b"x" * 5000 + b"\xff" + b"x" * 5000, "NOT_UTF8"),
        ("a.txt", b"x" * 9999 + b"\xc3", "NOT_UTF8"),
        ("a.txt", b"x" * 9999 + b"\0", "NOT_UTF8"),
        ("a.png", b"x" * 10, "FILE_TYPE"),
        ("a.bin", b"\0" * 20_001, "TOO_LARGE"),
    ],
    ids=["empty", "bad byte late", "cut letter", "binary late", "other type", "large"],
)
async def test_rejected_file_is_not_stored(
    store: ArtifactStore, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await store_upload(store, name, content, limit=20_000)
    assert caught.value.reason == reason
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240  # a test's few files


async def test_allowance_applies_to_all_files_together(store: ArtifactStore) -> None:
    allowance = Allowance(1500)
    await store_file(store, "default", "a", chunked(b"a" * 1000), allowance)
    with pytest.raises(InvalidRequest, match="larger than the limit"):
        await store_file(store, "default", "b", chunked(b"b" * 1000), allowance)


FORM = "multipart/form-data; boundary=X"


async def read(body: bytes, kind: str = FORM, size: int = 7) -> list[tuple[str, str | None, bytes]]:
    return [
        (part.name, part.filename, b"".join([chunk async for chunk in part.content]))
        async for part in parts(kind, chunked(body, size))
    ]


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    file = f'; filename="{filename}"' if filename is not None else ""
    return f'--X\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"


@pytest.mark.parametrize("size", [1, 3, 64, 10_000])
async def test_parts_do_not_depend_on_chunks(size: int) -> None:
    body = (
        part("request", "Grüße".encode())
        + part("file", b"\r\n--Y\r\n-", "ä.bin")
        + part("file", b"", "")
        + b"--X--\r\n"
    )
    assert await read(body, size=size) == [
        ("request", None, "Grüße".encode()),
        ("file", "ä.bin", b"\r\n--Y\r\n-"),
        ("file", "", b""),
    ]


async def test_unread_part_is_skipped() -> None:
    body = part("a", b"x" * 100) + part("b", b"y") + b"--X--\r\n"
    assert [each.name async for each in parts(FORM, chunked(body))] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", FORM),
        (b"no boundary at all", FORM),
        (part("a", b"b"), FORM),
        (b"--X\r\nContent-Disposition: form-data\r\n\r\nb\r\n--X--\r\n", FORM),
        (b"--X\r\nContent-Disposition: attachment; name=a\r\n\r\nb\r\n--X--\r\n", FORM),
        (b"--X\r\nBad Header\r\n\r\nb\r\n--X--\r\n", FORM),
        (b'--X\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nb\r\n--X--\r\n', FORM),
        (b"--X--\r\n", "multipart/form-data"),
        (b"--X--\r\n", f"multipart/form-data; boundary={'x' * 300}"),
        (part("a", b"") * (MAX_PARTS + 1) + b"--X--\r\n", FORM),
    ],
    ids=["empty", "junk", "cut", "no name", "no form", "bad header", "bad name", "no boundary", "long", "many"],
)
async def test_malformed_form_is_rejected(body: bytes, kind: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await read(body, kind, 4096)
    assert caught.value.remedy
