"""The table of metrics in services/common/README.md agrees with what Prometheus reads."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY

from tests.support.instruments import Instrument, instruments


@pytest.fixture
def meter_provider() -> Iterator[MeterProvider]:
    meter_provider = MeterProvider([PrometheusMetricReader()])
    yield meter_provider
    meter_provider.shutdown()


def one(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(1)


def count(meter_provider: MeterProvider, each: Instrument) -> None:
    meter = meter_provider.get_meter("test")
    if each.kind == "histogram":
        meter.create_histogram(each.name, each.unit, each.description).record(1)
    elif each.kind == "counter":
        meter.create_counter(each.name, each.unit, each.description).add(1)
    else:
        meter.create_observable_gauge(each.name, [one], each.unit, each.description)


def test_each_instrument_is_exported_by_its_documented_name(meter_provider: MeterProvider) -> None:
    there = instruments()
    assert len(there) > 20
    for each in there:
        count(meter_provider, each)
    found = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    assert [
        each.prometheus_name for each in there if not {each.prometheus_name, f"{each.prometheus_name}_count"} & found
    ] == []


def test_each_says_what_it_is_in_a_sentence() -> None:
    assert [each.name for each in instruments() if not each.description.endswith(".")] == []
