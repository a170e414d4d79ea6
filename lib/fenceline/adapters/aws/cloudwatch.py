"""Figures of CloudWatch, of the last hours, as sums and percentiles of whole periods.

Rule: metrics are found by their namespace and name, so that nothing of a deployment's names has to be known. A metric
without a value in the period is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fenceline.adapters.aws.client import Failure, make_client, unusable
from fenceline.ports import Unavailable

_METRICS_MAX = 500  # in one request
_PERIOD_S = 3_600


class Metric(NamedTuple):
    """A metric, with what distinguishes it from others of its name."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]


class Figures:
    """The metrics of a region of AWS. Safe to share between threads.

    Raises:
        Unavailable: No client can be made; the message says what to do.
        ModuleNotFoundError: boto3 is not installed.
    """

    def __init__(self, region: str, client: Any = None) -> None:
        self._client = client or make_client("cloudwatch", {"region": region})

    def metrics(self, namespace: str, name: str, dimensions: Sequence[str]) -> Sequence[Metric]:
        """Return the metrics of a name that have exactly these dimensions.

        Raises:
            Unavailable: CloudWatch refused, or did not answer.
        """
        found: list[Metric] = []
        more: dict[str, str] = {}
        while True:
            page = self._ask("list_metrics", Namespace=namespace, MetricName=name, **more)
            for one in page["Metrics"]:
                has = {dimension["Name"]: dimension["Value"] for dimension in one["Dimensions"]}
                if set(has) == set(dimensions):
                    found.append(Metric(namespace, name, has))
            if not page.get("NextToken"):
                return found
            more = {"NextToken": page["NextToken"]}

    def sums(self, wanted: Sequence[tuple[Metric, str]], since_ms: int, until_ms: int) -> Sequence[float | None]:
        """Return a statistic of each metric for a time: the sum of its hours, or the highest of them for a percentile.

        Raises:
            Unavailable: CloudWatch refused, or did not answer.
        """
        found: dict[str, list[float]] = {}
        for at in range(0, len(wanted), _METRICS_MAX):
            queries = [_query(f"q{at + number}", *one) for number, one in enumerate(wanted[at : at + _METRICS_MAX])]
            more: dict[str, str] = {}
            while True:
                page = self._ask(
                    "get_metric_data",
                    MetricDataQueries=queries,
                    StartTime=datetime.fromtimestamp(since_ms / 1_000, UTC),
                    EndTime=datetime.fromtimestamp(until_ms / 1_000, UTC),
                    **more,
                )
                for one in page["MetricDataResults"]:
                    found.setdefault(one["Id"], []).extend(one["Values"])
                if not page.get("NextToken"):
                    break
                more = {"NextToken": page["NextToken"]}
        return [_together(statistic, found.get(f"q{number}", [])) for number, (_, statistic) in enumerate(wanted)]

    def _ask(self, operation: str, **given: Any) -> Any:
        try:
            return getattr(self._client, operation)(**given)
        except Failure as error:
            raise unusable("cloudwatch", error) from error


def _query(id: str, metric: Metric, statistic: str) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions.items()]
    named = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
    return {"Id": id, "MetricStat": {"Metric": named, "Period": _PERIOD_S, "Stat": statistic}}


def _together(statistic: str, values: Sequence[float]) -> float | None:
    if not values:
        return None
    return max(values) if statistic.startswith("p") else sum(values)


__all__ = ["Figures", "Metric", "Unavailable"]
