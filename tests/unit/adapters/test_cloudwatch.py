"""Figures of CloudWatch: metrics are found by name, and added up over the hours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto import mock_aws

from fenceline.adapters.aws.client import make_client
from fenceline.adapters.aws.cloudwatch import Figures, Metric
from fenceline.ports import Unavailable

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY_MS = 24 * 3_600_000


@pytest.fixture
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws():
        yield make_client("cloudwatch", {"region": "eu-west-1"})


def put(cloudwatch: Any, name: str, value: float, hours_ago: int, **dimensions: str) -> None:
    listed = [{"Name": dimension, "Value": text} for dimension, text in dimensions.items()]
    at = NOW - timedelta(hours=hours_ago)
    data = [{"MetricName": name, "Value": value, "Timestamp": at, "Dimensions": listed}]
    cloudwatch.put_metric_data(Namespace="Fenceline", MetricData=data)


def test_a_sum_is_that_of_all_hours(cloudwatch: Any) -> None:
    for value, hours_ago in ((3, 1), (4, 1), (5, 20), (100, 30)):
        put(cloudwatch, "AppendMs", value, hours_ago, service="log")
    figures = Figures("eu-west-1", cloudwatch)
    [metric] = figures.metrics("Fenceline", "AppendMs", ["service"])
    wanted = [(metric, "Sum"), (metric, "SampleCount")]
    assert figures.sums(wanted, NOW_MS - DAY_MS, NOW_MS) == [12, 3]
    assert figures.sums([(metric, "Sum")], NOW_MS - 2_000, NOW_MS - 1_000) == [None]


class Paged:
    """CloudWatch with two pages of one percentile, which moto does not have."""

    def get_metric_data(self, **asked: Any) -> Any:
        if "NextToken" in asked:
            return {"MetricDataResults": [{"Id": "q0", "Values": [30.0, 20.0]}]}
        return {"MetricDataResults": [{"Id": "q0", "Values": [10.0]}], "NextToken": "1"}


def test_a_percentile_is_that_of_the_slowest_hour() -> None:
    wanted = [(Metric("Fenceline", "AppendMs", {}), "p99")]
    assert Figures("eu-west-1", Paged()).sums(wanted, NOW_MS - DAY_MS, NOW_MS) == [30]


def test_only_metrics_with_the_very_dimensions_are_found(cloudwatch: Any) -> None:
    put(cloudwatch, "Refusals", 1, 1, service="log")
    put(cloudwatch, "Refusals", 1, 1, service="log", code="THROTTLED")
    found = Figures("eu-west-1", cloudwatch).metrics("Fenceline", "Refusals", ["service", "code"])
    assert [one.dimensions for one in found] == [{"service": "log", "code": "THROTTLED"}]


def test_a_refusal_of_cloudwatch_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    client = make_client("cloudwatch", {"region": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"})
    with pytest.raises(Unavailable, match="service=cloudwatch"):
        Figures("eu-west-1", client).metrics("Fenceline", "AppendMs", ["service"])
