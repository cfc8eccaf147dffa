"""What README says of metrics is what Prometheus finds."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY

from tests.support.instruments import Instrument, instruments


@pytest.fixture
def provider() -> Iterator[MeterProvider]:
    provider = MeterProvider([PrometheusMetricReader()])
    yield provider
    provider.shutdown()


def one(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(1)


def count(provider: MeterProvider, each: Instrument) -> None:
    meter = provider.get_meter("test")
    if each.kind == "histogram":
        meter.create_histogram(each.name, each.unit, each.description).record(1)
    elif each.kind == "counter":
        meter.create_counter(each.name, each.unit, each.description).add(1)
    else:
        meter.create_observable_gauge(each.name, [one], each.unit, each.description)


def test_each_is_found_by_the_name_it_is_said_to_have(provider: MeterProvider) -> None:
    there = instruments()
    assert len(there) > 20
    for each in there:
        count(provider, each)
    found = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    assert [each.fetched for each in there if not {each.fetched, f"{each.fetched}_count"} & found] == []


def test_each_says_what_it_is_in_a_sentence() -> None:
    assert [each.name for each in instruments() if not each.description.endswith(".")] == []
