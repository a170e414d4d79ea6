"""The functions that run without a request: the sweeper each minute, the compactor four times an hour.

Rule: a run that fails is not repeated, because the next run comes anyway, and continues where the last one stopped. A
run that failed, or could not be started, leaves a dead letter, and an alarm.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.nag import accept

SWEEP_MINUTES = 1
COMPACT_MINUTES = 15


class Schedules(Construct):
    """The schedules of a region, and the queue for runs that failed or could not be started."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            enforce_ssl=True,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            retention_period=Duration.days(14),
        )
        accept(self.dead_letters, "SQS3", "it is where dead letters go; they have nowhere further to go")

    def every(self, name: str, minutes: int, function: lambda_.IFunction) -> None:
        """Call a function every ``minutes`` minutes."""
        role = iam.Role(
            self,
            f"{name}Role",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"),
            description=f"What fenceline's clock may do: {name}",
        )
        # A grant of the function would name all its versions, too.
        for action, arn in (
            ("lambda:InvokeFunction", function.function_arn),
            ("sqs:SendMessage", self.dead_letters.queue_arn),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[arn]))
        scheduler.CfnSchedule(
            self,
            name,
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=role.role_arn,
                input='{"time": "<aws.scheduler.scheduled-time>"}',  # a clock that goes on while a function is frozen
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.dead_letters.queue_arn),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=60
                ),
            ),
        )
