"""The resources of a region with peers: two queues, a role for the peers, and the address that they read.

Rule: a new segment is news. The bucket reports it to the queue ``news`` of its own region, because S3 reports nowhere
else. The notifier turns the news into one message per partition for the queue ``pull`` of each peer, and for its own.
The replicator reads ``pull``. A message that fails five times becomes a dead letter. A lost message costs time and no
record, because the schedule finds what is due ("Triggers"), so only alarms say that a queue is not read or not written.

The queues promise no order and may deliver twice. Nothing depends on either, because the log says what was taken (I18).

Not here: which regions are peers (``peers``); what the functions do (``functions/replication``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from fenceline.settings import PEER_SESSION
from fenceline_http import routes
from infra import peers
from infra.functions import SIZES
from infra.invoking import grant
from infra.nag import accept
from infra.peers import PeerReference

REPLICATE_MINUTES = 1
TRIES = 5
# Messages in one call, over whose partitions the replicator runs side by side.
_BATCH = 10
# Calls of one queue's function at once, so that a flood of one region leaves the account's concurrency to the others.
_CALLS_AT_ONCE = 100
# The only requests that a peer may send to us.
_GRANTED = ("/v1/health", "/v1/topics/{topic}", "/v1/topics/{topic}/partitions/{partition}/segments")


class ReplicationQueues(Construct):
    """The queues ``news`` and ``pull``, and the one for their dead letters.

    Args:
        stack: The name of this stack, with which the name of ``pull`` begins.
    """

    def __init__(self, scope: Construct, id: str, *, stack: str, among: Sequence[PeerReference]) -> None:
        super().__init__(scope, id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            enforce_ssl=True,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            retention_period=cdk.Duration.days(14),
        )
        accept(self.dead_letters, "SQS3", "it is where dead letters go; they have nowhere further to go")
        self.news = self._queue("News", "notifier")
        self.pull = self._queue("Pull", "replicator", f"{stack}-{peers.PULL}")
        # The policy can't name the bucket, which can't be made before S3 may send here. The notifier passes over what
        # other buckets report.
        self.news.add_to_resource_policy(
            iam.PolicyStatement(
                sid="NewsOfTheBucket",
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.news.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            )
        )
        for peer in among:
            self.pull.add_to_resource_policy(self._sent_by(peer))

    def reads(self, queue: sqs.IQueue) -> list[iam.PolicyStatement]:
        """Return a statement that allows taking messages from a queue. Lambda takes them, as the function."""
        actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
        return [iam.PolicyStatement(actions=actions, resources=[queue.queue_arn])]

    def sends(self, *queues: str) -> list[iam.PolicyStatement]:
        """Return a statement that allows sending to our own queue ``pull``, and to these, by their ARNs."""
        return [iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.pull.queue_arn, *queues])]

    def feed(self, notifier: lambda_.IFunction, replicator: lambda_.IFunction) -> None:
        """Let the queues call their functions. Only the messages that a call reports as failed come again."""
        for name, queue, function in (("News", self.news, notifier), ("Pull", self.pull, replicator)):
            function.add_event_source_mapping(
                name,
                event_source_arn=queue.queue_arn,
                batch_size=_BATCH,
                max_concurrency=_CALLS_AT_ONCE,
                report_batch_item_failures=True,
            )

    def _queue(self, id: str, function: str, name: str | None = None) -> sqs.Queue:
        return sqs.Queue(
            self,
            id,
            queue_name=name,
            enforce_ssl=True,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            # Twice what a call may take, so that a message under work comes to no other call, and a failed one comes
            # again soon.
            visibility_timeout=hidden(function),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=TRIES),
        )

    def _sent_by(self, peer: PeerReference) -> iam.PolicyStatement:
        """Return a statement for a peer's notifier, by its account, because a role as principal would have to exist."""
        return iam.PolicyStatement(
            sid="NewsOf" + "".join(part.capitalize() for part in peer.settings.name.split("-")),
            principals=[iam.AccountPrincipal(peer.account)],
            actions=["sqs:SendMessage"],
            resources=[self.pull.queue_arn],
            conditions={"ArnEquals": {"aws:PrincipalArn": peer.notifier}},
        )


def hidden(function: str) -> cdk.Duration:
    """Return for how long a message is hidden once a call of the function has it."""
    return cdk.Duration.seconds(2 * SIZES[function].timeout_s)


def report_segments(bucket: s3.Bucket, queue: sqs.Queue) -> None:
    """Let the bucket report each new segment to a queue."""
    made = cast(s3.CfnBucket, bucket.node.default_child)
    rules = [
        s3.CfnBucket.FilterRuleProperty(name="prefix", value="log/"),
        s3.CfnBucket.FilterRuleProperty(name="suffix", value=".log"),
    ]
    made.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        queue_configurations=[
            s3.CfnBucket.QueueConfigurationProperty(
                event="s3:ObjectCreated:Put",
                queue=queue.queue_arn,
                filter=s3.CfnBucket.NotificationFilterProperty(
                    s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=rules),
                ),
            )
        ]
    )
    # S3 sends a trial message before it takes the setting.
    made.node.add_dependency(queue.node.find_child("Policy"))


class ForPeers(Construct):
    """The resources of this region that peers use: its address, its bucket, and a role for a replicator's requests.

    Args:
        stack: The name of this stack, with which the names begin.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        stack: str,
        among: Sequence[PeerReference],
        api: apigateway.HttpApi,
        bucket: s3.IBucket,
    ) -> None:
        super().__init__(scope, id)
        ssm.StringParameter(
            self,
            "Url",
            parameter_name=peers.parameter_name(stack),
            string_value=api.api_endpoint,
            description="Where fenceline's API is in this region, for its peers",
        )
        ssm.StringParameter(
            self,
            "Bucket",
            parameter_name=peers.bucket_parameter_name(stack),
            string_value=bucket.bucket_name,
            description="Where fenceline's segments are in this region, for its peers, which fetch them nowhere else",
        )
        # The session's name says which peer asks, so each may take the role under its own name alone, beside the name
        # that older versions use.
        trusted = [
            iam.AccountPrincipal(peer.account).with_conditions(
                {
                    "ArnEquals": {"aws:PrincipalArn": peer.askers},
                    "StringEquals": {"sts:RoleSessionName": [peer.settings.name, PEER_SESSION]},
                }
            )
            for peer in among
        ]
        self.role = iam.Role(
            self,
            "Role",
            role_name=f"{stack}-{peers.PEER}",
            description="What fenceline's other regions may ask of this one",
            assumed_by=iam.CompositePrincipal(*trusted),
        )
        because = "topics are named while it runs; other requests are denied"
        grant(self.role, api, [("GET", path) for path in _GRANTED], because=because)
        grant(self.role, api, [("GET", path) for path in denied_paths()], because=because, effect=iam.Effect.DENY)


def denied_paths() -> list[str]:
    """Return the paths of all routes that what is granted also matches: every GET below a topic but ``segments``."""
    topic = "/v1/topics/{topic}/"
    below = [route.path for route in routes.ROUTES if route.method == "GET" and route.path.startswith(topic)]
    return [path for path in below if path not in _GRANTED]
