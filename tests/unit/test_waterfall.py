"""Waterfall of a trace: nesting of its spans, and valid output."""

from xml.etree.ElementTree import fromstring

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.trace_picture import ServiceSpan, waterfall
from tests.support.waterfall import Bar, draw_waterfall

SERVER, CLIENT, OWN = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL
MS = 1_000_000


def service_span(
    service: str, key: str, above: str, kind: "Span.SpanKind.ValueType", lasted: tuple[int, int]
) -> ServiceSpan:
    span = Span(name=key, span_id=key.encode(), parent_span_id=above.encode(), kind=kind)
    span.start_time_unix_nano, span.end_time_unix_nano = (moment * MS for moment in lasted)
    return ServiceSpan(service, span)


def test_call_is_shown_once_with_its_children() -> None:
    ask = service_span("gateway", "ask", "outside", SERVER, (10, 90))
    calls = [
        service_span("gateway", "call", "ask", CLIENT, (20, 80)),
        service_span("expert", "served", "call", SERVER, (30, 70)),
    ]
    batch = service_span("expert", "batch", "served", OWN, (40, 60))
    batch.span.links.add(span_id=b"served")
    away = service_span("gateway", "away", "ask", CLIENT, (85, 86))
    assert waterfall([batch, away, *calls, ask]) == [
        Bar(b"ask", "ask", "gateway", 0, 0.0, 80.0),
        Bar(b"served", "served", "expert", 1, 20.0, 60.0),
        Bar(b"batch", "batch", "expert", 2, 30.0, 50.0, (b"served",)),
        Bar(b"away", "away", "gateway", 1, 75.0, 76.0),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_with_names_times_services_and_links(scheme: str) -> None:
    bars = [Bar(b"1", "a <b>", "gateway", 0, 0.0, 250.0), Bar(b"2", "batch", "expert", 1, 10.0, 20.0, (b"1", b"3"))]
    picture = draw_waterfall("“do & see”", bars, scheme)
    words = [element.text for element in fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert words == [
        *("“do & see”", "2 spans of 2 processes, 250 ms", "gateway", "expert"),
        *("a <b>", "250 ms", "batch", "10.0 ms, linked to its 2 calls"),
    ]
    assert picture.count("stroke-dasharray") == 1
