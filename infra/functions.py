"""The functions, each with a role of its own that may do what that function does, and nothing else.

Rule: memory and time-outs are decided here and nowhere else, each with its reason. A function's settings are what
``Settings`` writes.

Not here: what each role may do (``regional_stack``), and the code (``bundling``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fenceline import limits
from fenceline.settings import Settings
from infra.context import Deployment
from infra.logs import log_group
from infra.nag import accept

_API_S = 29  # less than the gateway's 30, after which no caller would get the answer


@dataclass(frozen=True, slots=True)
class Size:
    """A function's memory and time-out, and what calls it.

    Its share of CPU grows with memory: 1,769 MB are one core. What the clock calls, a queue may call, too.
    """

    memory_mb: int
    timeout_s: int
    caller: Literal["api", "clock", "queue"] = "api"


SIZES: Mapping[str, Size] = {
    # Checks and decompresses up to 4 MiB, which may become 64, on the caller's time: a whole core.
    "produce": Size(1_769, _API_S),
    # Fetches 32 segments side by side and turns 4 MiB into JSON: a whole core. A long poll takes up to 20 s of the 29.
    "read": Size(1_769, _API_S),
    # Small items; a compaction within a request reads 64 MiB in pieces of 16.
    "admin": Size(1_024, _API_S),
    # Reads as read does; marks and seeks are small items.
    "subscriptions": Size(1_769, _API_S),
    # Small items; a claim's markers are appended side by side, and its wait takes up to 20 s of the 29.
    "sessions": Size(1_024, _API_S),
    # Appends up to 500 markers of an end, 32 side by side, on the caller's time: a whole core.
    "transactions": Size(1_769, _API_S),
    # Ends before the next one begins, a minute later; compacts up to 256 MiB within a run.
    "sweeper": Size(1_769, 60, "clock"),
    # Lambda's longest time. The memory is for 2 million keys at 171 bytes, a file of 64 MiB, and 16 MiB of segments.
    "compactor": Size(3_008, 900, "clock"),
    # Small messages. Of its time most is for queues of other regions that do not answer.
    "notifier": Size(512, 30, "queue"),
    # Strips, checks and packs whole segments, 32 MiB ahead: a whole core. A run of 60 s, and what it has begun.
    "replicator": Size(1_769, 90, "clock"),
}


POLLING = ("read", "sessions", "subscriptions")


def poll_slots(name: str, deployment: Deployment) -> int:
    """Return how many polls this function holds at once.

    A quarter of what is reserved answers requests that do not wait, and polls that found no slot. Where Lambda itself
    refuses a call, its caller gets a 503.
    """
    if name not in POLLING:
        return 0
    if not deployment.poll_concurrency:
        return limits.POLLS_OF_A_FUNCTION
    return max(deployment.poll_concurrency * 3 // 4, 1)


class Function(Construct):
    """One function, its role and its log.

    Args:
        name: Its key in ``SIZES``, and its module in ``functions``.
        code: The bundle.
        settings: The settings in its environment, except for those that depend on the function.
        may: Its permissions for the stores.
        dead_letters: The queue for calls that failed, where no caller waits for an answer.
        role_name: The name of its role, where other stacks must know it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        deployment: Deployment,
        code: lambda_.Code,
        settings: Settings,
        may: Sequence[iam.PolicyStatement],
        dead_letters: sqs.IQueue | None = None,
        role_name: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        size = SIZES[name]
        log = log_group(self, "Log", deployment)
        self.role = iam.Role(
            self,
            "Role",
            role_name=role_name,
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What fenceline's {name} function may do",
        )
        for statement in may:
            self.role.add_to_policy(statement)
        self.role.add_to_policy(
            iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log.log_group_arn])
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"fenceline: {name}",
            code=code,
            handler=f"functions.{name}.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=size.memory_mb,
            timeout=cdk.Duration.seconds(size.timeout_s),
            environment=replace(settings, function=name, poll_slots=poll_slots(name, deployment)).to_env(),
            reserved_concurrent_executions=(deployment.poll_concurrency or None) if name in POLLING else None,
            role=self.role,
            log_group=log,
            tracing=lambda_.Tracing.ACTIVE if deployment.tracing else lambda_.Tracing.DISABLED,
            dead_letter_queue=dead_letters,
            retry_attempts=0 if size.caller == "clock" else None,  # because the next run comes by itself
        )
        accept(self.function, "L1", "the bundle's compiled parts are built for Python 3.13, and tested with it")
        if deployment.tracing:
            accept(self.role, "IAM5[Resource::*]", "X-Ray takes no resources")
