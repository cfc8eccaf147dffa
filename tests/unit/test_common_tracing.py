"""Span contexts in headers of clients."""

import logging

import pytest

from services.common import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("vendor=opaque", "vendor=opaque"),
        ("a=1, tenant@vendor=x y", "a=1,tenant@vendor=x y"),
        ("a=" + "v" * 500 + ",b=" + "v" * 500, ""),
        ("my password is hunter2", ""),
        ("1a=v", ""),
        ("a=b\nc", ""),
        ("a=\N{LATIN SMALL LETTER E WITH ACUTE}", ""),
        (",".join(f"k{number}=v" for number in range(33)), ""),
    ],
)
def test_tracestate_is_propagated_only_if_valid_and_short(
    state: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        found = tracing.extract({"traceparent": PARENT, "tracestate": state})
    assert tracing.traceparent(found) == PARENT
    assert found.trace_state.to_header() == expected
    assert not caplog.records


@pytest.mark.parametrize("header", ["", "nonsense", f"{PARENT[:-2]}zz", f"00-{'0' * 32}-{'1' * 16}-01"])
def test_malformed_traceparent_is_ignored(header: str) -> None:
    assert not tracing.extract({"traceparent": header, "tracestate": "a=b"}).is_valid
