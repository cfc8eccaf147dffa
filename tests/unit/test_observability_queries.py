"""The check of queries reports unknown metrics and labels; Grafana is configured to be read-only."""

from configparser import ConfigParser

import pytest

from tests.observability.promql import grouped, metrics, query_errors
from tests.observability.queries import FOLDER, of_dashboards, of_rules, of_scalers

KNOWN = {"calls_total": {"model", "state", "instance"}, "seconds_bucket": {"le", "model"}, "up": {"job", "instance"}}


@pytest.mark.parametrize(
    ("query", "named", "by"),
    [
        ("up", {"up": set()}, set()),
        ('sum by (model) (rate(calls_total{state="by (x) {y}"}[5m]))', {"calls_total": {"state"}}, {"model"}),
        (
            "histogram_quantile(0.95, sum by (le, model) (rate(seconds_bucket[5m]))) > 1e3",
            {"seconds_bucket": set()},
            {"le", "model"},
        ),
        (
            'a_total{x="1", y!~"2"} / on (z) group_left (w) b_total or vector(0)',
            {"a_total": {"x", "y"}, "b_total": set()},
            {"z", "w"},
        ),
        ("3600 * sum(a_total offset 5m) and b_total", {"a_total": set(), "b_total": set()}, set()),
    ],
)
def test_names_of_a_query(query: str, named: dict[str, set[str]], by: set[str]) -> None:
    assert metrics(query) == named
    assert grouped(query) == by


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("sum(rate(cals_total[5m]))", "there is no cals_total"),
        ('sum(calls_total{stat="running"})', "calls_total has no label stat"),
        ("sum by (modell) (calls_total)", "none of calls_total has the label modell"),
        ("sum by (le) (up) / sum by (job) (up)", "none of up has the label le"),
    ],
)
def test_invalid_query_is_reported(query: str, complaint: str) -> None:
    assert list(query_errors(query, KNOWN)) == [complaint]


def test_valid_query_is_accepted() -> None:
    query = 'histogram_quantile(0.5, sum by (le) (rate(seconds_bucket{model="m"}[1m]))) and on (instance) up'
    assert list(query_errors(query, KNOWN)) == []


def test_every_dashboard_and_rule_has_queries() -> None:
    assert all(
        len(list(queries())) > least for queries, least in ((of_dashboards, 40), (of_rules, 10), (of_scalers, 5))
    )


def test_grafana_viewers_are_read_only_and_telemetry_is_off() -> None:
    config = ConfigParser()
    config.read_string((FOLDER / "grafana" / "grafana.ini").read_text())
    assert config["auth.anonymous"]["org_role"] == "Viewer"
    off = {
        ("auth.basic", "enabled"),
        ("users", "viewers_can_edit"),
        ("snapshots", "enabled"),
        ("snapshots", "external_enabled"),
        ("analytics", "reporting_enabled"),
    }
    assert not any(config.getboolean(*each) for each in off)
