"""One dashboard and the alarms of a region. docs/operate/runbooks/ says of each alarm what to do.

Rule: an alarm is for what an operator should act upon.

Not here: what the functions measure, and under which names (``functions/telemetry/metric_names.py`` alone).
"""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from functions.telemetry import metric_names
from infra.context import Deployment
from infra.replication import TRIES, ReplicationQueues, hidden
from infra.runbooks import runbook_of

LAG_MS = 300_000
# A message that fails each time is a dead letter after that time. A delay of our own is a minute at most.
UNREAD_S = TRIES * hidden("replicator").to_seconds()
FIVE_MINUTES = cdk.Duration.minutes(5)
HALF_HOUR = cdk.Duration.minutes(30)

Comparison = cloudwatch.ComparisonOperator
Missing = cloudwatch.TreatMissingData


class Observability(Construct):
    """The dashboard and the alarms."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        stage: str,
        api: apigateway.HttpApi,
        functions: Mapping[str, lambda_.IFunction],
        table: dynamodb.ITableV2,
        dead_letters: sqs.IQueue,
        queues: ReplicationQueues | None,
    ) -> None:
        super().__init__(scope, id)
        self._stage = stage
        region = cdk.Stack.of(self).region
        arn = deployment.alarm_topics.get(region)
        if not arn:
            cdk.Annotations.of(self).add_warning_v2(
                "fenceline:AlarmsWithoutAction",
                f"the alarms of {region} have no action: name an SNS topic of that region, "
                f"-c alarm_topics=arn:aws:sns:{region}:ACCOUNT:NAME",
            )
        self._action = actions.SnsAction(sns.Topic.from_topic_arn(self, "Told", arn)) if arn else None
        self._alarms: list[cloudwatch.Alarm] = []
        self._alarms_of_the_log()
        self._alarms_of_transactions()
        self._alarms_of_the_service(api, functions, table)
        self._alarms_of_schedules(functions["sweeper"], dead_letters)
        if queues is not None:
            self._alarms_of_replication(queues)
        self.dashboard = self._dashboard(api, functions)
        if queues is not None:
            self._graphs_of_replication(queues)

    def _alarms_of_the_log(self) -> None:
        self._alarm(
            "CorruptLog",
            self._ours(metric_names.CORRUPT_LOG, "Sum"),
            1,
            "Stored data breaks an invariant (CORRUPT_LOG); nothing more is written there. Run fenceline verify.",
        )
        self._alarm(
            "Contention",
            self._ours(metric_names.CONTENDED, "Sum"),
            10,
            "Appends gave up because others kept winning (CONTENDED). Use fewer writers, or more partitions.",
        )

    def _alarms_of_transactions(self) -> None:
        """Raise an alarm for what should have ended, what nothing ends, and wrong clocks. The sweeper measures."""
        self._alarm(
            "TransactionsOverdue",
            self._ours(metric_names.TRANSACTIONS_OVERDUE, "Maximum"),
            1,
            "Transactions that are decided, or past their time-out, did not end for 5 minutes: readers may wait.",
        )
        self._alarm(
            "TransactionsHanging",
            self._ours(metric_names.TRANSACTIONS_HANGING, "Maximum"),
            1,
            "Transactions are open in a partition, and no transactional id can end them. Run fenceline verify.",
        )
        self._alarm(
            "TransactionsAhead",
            self._ours(metric_names.TRANSACTIONS_AHEAD, "Maximum"),
            1,
            "Transactions have a time ahead of the store's clock: the clock of a process that serves them is wrong.",
        )

    def _alarms_of_the_service(
        self, api: apigateway.HttpApi, functions: Mapping[str, lambda_.IFunction], table: dynamodb.ITableV2
    ) -> None:
        self._alarm(
            "ServerErrors",
            api.metric_server_error(period=FIVE_MINUTES, statistic="Sum"),
            5,
            "Requests were answered with 5xx. The functions' logs name the codes.",
        )
        for name, function in functions.items():
            self._alarm(
                f"{name.capitalize()}Errors",
                function.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
                1,
                f"The {name} function ended with an error that is none of the documented ones, or ran out of time.",
            )
            self._alarm(
                f"{name.capitalize()}Throttles",
                function.metric_throttles(period=FIVE_MINUTES, statistic="Sum"),
                1,
                f"Lambda refused calls of the {name} function: raise the account's concurrency quota.",
            )
        self._alarm(
            "TableThrottles",
            cloudwatch.Metric(
                namespace="AWS/DynamoDB",
                metric_name="WriteThrottleEvents",
                dimensions_map={"TableName": table.table_name},
                period=FIVE_MINUTES,
                statistic="Sum",
            ),
            1,
            "DynamoDB refused writes: an item is written too often, or the table's quota is reached.",
        )

    def _alarms_of_schedules(self, sweeper: lambda_.IFunction, dead_letters: sqs.IQueue) -> None:
        self._alarm(
            "SweeperSilent",
            sweeper.metric_invocations(period=HALF_HOUR, statistic="Sum"),
            1,
            "The sweeper did not run for half an hour: nothing expires, and nothing is collected.",
            comparison=Comparison.LESS_THAN_THRESHOLD,
            missing=Missing.BREACHING,
        )
        self._alarm(
            "DeadLetters",
            dead_letters.metric_approximate_number_of_messages_visible(period=FIVE_MINUTES, statistic="Maximum"),
            1,
            "A run of a schedule failed, or could not be started: the sweeper's, the compactor's or the replicator's.",
        )

    def _alarms_of_replication(self, queues: ReplicationQueues) -> None:
        """Raise an alarm for what stops a link, or delays it. The replicator measures."""
        self._alarm(
            "ReplicationGap",
            self._ours(metric_names.REPLICATION_GAPS, "Maximum"),
            1,
            "Another region deleted records that were not taken; their link stopped. Run fenceline replication status.",
        )
        self._alarm(
            "ReplicationOtherHistory",
            self._ours(metric_names.OTHER_HISTORIES, "Maximum"),
            1,
            "Another region's log is not the one that was replicated so far; nothing more is taken from it.",
        )
        self._alarm(
            "ReplicationLag",
            self._ours(metric_names.REPLICATION_LAG_MS, "Maximum"),
            LAG_MS,
            "Records of another region have waited for 5 minutes to be taken, or it has not answered for so long.",
        )
        self._alarm(
            "ReplicationDeadLetters",
            queues.dead_letters.metric_approximate_number_of_messages_visible(period=FIVE_MINUTES, statistic="Maximum"),
            1,
            "Messages of the queues news or pull failed five times.",
        )
        self._alarm(
            "ReplicationUnread",
            queues.pull.metric_approximate_age_of_oldest_message(period=FIVE_MINUTES, statistic="Maximum"),
            UNREAD_S,
            "The oldest message of the queue pull has waited for 15 minutes: the replicator does not read it.",
        )
        self._alarm(
            "ReplicationUnsent",
            self._ours(metric_names.UNSENT, "Sum"),
            1,
            "The queue pull of another region took no messages, again and again within an hour. It may be away.",
            periods=12,
            datapoints=3,
        )

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        *,
        comparison: cloudwatch.ComparisonOperator = Comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        missing: cloudwatch.TreatMissingData = Missing.NOT_BREACHING,
        periods: int = 1,
        datapoints: int | None = None,
    ) -> None:
        """Raise an alarm, whose description ends with the address of its runbook.

        Args:
            datapoints: How many of the ``periods`` must be so; ``None``: all.
        """
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=datapoints,
            alarm_description=f"{description} See {runbook_of(id)} in the documentation.",
            comparison_operator=comparison,
            treat_missing_data=missing,
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)
        self._alarms.append(alarm)

    def _ours(self, name: str, statistic: str, *, label: str | None = None) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=metric_names.NAMESPACE,
            metric_name=name,
            dimensions_map={metric_names.SERVICE: self._stage},
            period=FIVE_MINUTES,
            statistic=statistic,
            label=label,
        )

    def _dashboard(self, api: apigateway.HttpApi, functions: Mapping[str, lambda_.IFunction]) -> cloudwatch.Dashboard:
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=cdk.Duration.hours(3))
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(alarms=self._alarms, width=24))
        percentiles = ("p50", "p99")
        dashboard.add_widgets(
            _graph("Appends, ms", [self._ours(metric_names.APPEND_MS, one, label=one) for one in percentiles]),
            _graph(
                "Creates",
                [
                    self._ours(name, "Sum")
                    for name in (
                        metric_names.CREATES,
                        metric_names.LOST_RACES,
                        metric_names.CONFLICTS,
                        metric_names.DUPLICATES,
                    )
                ],
            ),
            _graph(
                "Refused, given up",
                [self._ours(name, "Sum") for name in (metric_names.REFUSALS, metric_names.CONTENDED)],
            ),
        )
        dashboard.add_widgets(
            _graph("API: requests", [api.metric_count(), api.metric_client_error(), api.metric_server_error()]),
            _graph("API: latency, ms", [api.metric_latency(statistic=one) for one in percentiles]),
            _graph(
                "Transactions: overdue, hanging, ahead",
                [
                    self._ours(name, "Maximum")
                    for name in (
                        metric_names.TRANSACTIONS_OVERDUE,
                        metric_names.TRANSACTIONS_HANGING,
                        metric_names.TRANSACTIONS_AHEAD,
                    )
                ],
            ),
            _graph("Checkpoints, age in ms", [self._ours(metric_names.CHECKPOINT_AGE, "Maximum")]),
        )
        dashboard.add_widgets(
            _graph(
                "Groups: members, unsettled groups",
                [self._ours(name, "Maximum") for name in (metric_names.GROUP_MEMBERS, metric_names.GROUPS_UNSETTLED)],
            ),
            _graph(
                "Groups: members removed, writes lost",
                [self._ours(name, "Sum") for name in (metric_names.MEMBERS_REMOVED, metric_names.LOST_GROUP_WRITES)],
            ),
        )
        dashboard.add_widgets(
            _graph("Functions: duration, ms", [one.metric_duration(statistic="p99") for one in functions.values()]),
            _graph("Functions: errors", [one.metric_errors() for one in functions.values()]),
            _graph("Functions: throttled", [one.metric_throttles() for one in functions.values()]),
        )
        return dashboard

    def _graphs_of_replication(self, queues: ReplicationQueues) -> None:
        waiting = [
            queue.metric_approximate_number_of_messages_visible(label=name)
            for name, queue in (("news", queues.news), ("pull", queues.pull), ("dead letters", queues.dead_letters))
        ]
        stopped = [
            self._ours(name, "Maximum") for name in (metric_names.REPLICATION_GAPS, metric_names.OTHER_HISTORIES)
        ]
        self.dashboard.add_widgets(
            _graph("Replication: lag, ms", [self._ours(metric_names.REPLICATION_LAG_MS, "Maximum")]),
            _graph("Replication: gaps, other histories", stopped),
            _graph("Replication: queues", waiting),
        )


def _graph(title: str, left: list[cloudwatch.Metric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=left, width=8)
