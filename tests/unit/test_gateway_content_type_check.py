import pytest

from gateway.core.uploads import check_content_type, is_compatible
from services.common.errors import InvalidRequest

AGREE = [
    ("", "image/png"), ("application/octet-stream", "image/png"), ("binary/octet-stream", "application/zip"),
    ("image/png", "image/png"), ("IMAGE/PNG; x=y", "image/png"), ("image/jpg", "image/jpeg"),
    ("audio/x-wav", "audio/wav"), ("audio/mp3", "audio/mpeg"), ("audio/opus", "audio/ogg"),
    ("audio/webm;codecs=opus", "video/webm"), ("video/mp4", "audio/mp4"), ("video/quicktime", "video/mp4"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "application/zip"),
    ("application/vnd.ms-excel", "text/csv"), ("application/vnd.ms-excel", "application/octet-stream"),
    ("text/x-python", "text/plain"), ("text/plain", "text/html"), ("text/html", "text/plain"),
    ("application/json", "text/plain"), ("application/ld+json", "text/plain"), ("image/svg+xml", "text/plain"),
    ("application/x-yaml", "text/plain"), ("image/x-canon-cr2", "image/tiff"),
    ("image/x-unheard-of", "application/octet-stream"),
    ("application/vnd.something", "application/zip"),
]  # fmt: skip
DISAGREE = [
    ("image/png", "image/jpeg"), ("image/png", "application/pdf"), ("image/png", "text/html"),
    ("image/png", "application/octet-stream"), ("text/plain", "image/png"), ("text/html", "application/octet-stream"),
    ("application/pdf", "text/html"), ("application/json", "image/png"), ("audio/wav", "audio/mpeg"),
    ("video/mp4", "image/png"), ("image/x-canon-cr2", "application/pdf"), ("image/x-unheard-of", "audio/wav"),
    ("image/x-unheard-of", "text/plain"), ("audio/mpeg", "application/zip"), ("application/pdf", "application/zip"),
]  # fmt: skip


@pytest.mark.parametrize(("claimed", "found"), AGREE)
def test_alias_or_missing_content_type_is_accepted(claimed: str, found: str) -> None:
    assert is_compatible(claimed, found)


@pytest.mark.parametrize(("claimed", "found"), DISAGREE)
def test_content_type_that_contradicts_the_bytes_is_rejected(claimed: str, found: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^cannot accept a: it was sent as") as caught:
        check_content_type("a", claimed, found)
    assert caught.value.reason == "FILE_TYPE"
    assert caught.value.remedy
