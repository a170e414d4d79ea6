"""One region: its stores, its functions, its API, its schedules and its alarms, put together and granted.

Rule: one table here has what each function may do, with the reason where it is not plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fenceline.settings import Settings
from functions import ASKING_PEERS, FUNCTIONS, WITH_PEERS
from infra.api import Api
from infra.context import Deployment, SparkSettings
from infra.functions import SIZES, Function
from infra.observability import Observability
from infra.peers import ADMIN, NEWS, PULL, peers_of, stack_name
from infra.replication import REPLICATE_MINUTES, ForPeers, ReplicationQueues, report_segments
from infra.schedules import COMPACT_MINUTES, SWEEP_MINUTES, Schedules
from infra.spark import Spark
from infra.storage import Storage

_READS_ITEMS = ("GetItem", "BatchGetItem", "Query")
_WRITES_ITEMS = ("PutItem", "ConditionCheckItem")
COLLECTORS = ("sweeper",)


class RegionalStack(cdk.Stack):
    """fenceline in one region.

    Args:
        code: The directory of the functions' bundle.
        asking: The directory of the bundle for functions that ask peers. Without peers there is none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        code: Path,
        env: cdk.Environment,
        asking: Path | None = None,
    ) -> None:
        super().__init__(scope, id, env=env, description="fenceline: a partitioned log on object storage")
        self._deployment = deployment
        self.storage = Storage(self, "Storage", deployment=deployment)
        self._peers = peers_of(
            self,
            self.region,
            deployment=deployment.name,
            regions=deployment.regions,
            others=deployment.peers,
        )
        self._named = stack_name(deployment.name, self.region)
        self.queues = ReplicationQueues(self, "Queues", stack=self._named, among=self._peers) if self._peers else None
        schedules = Schedules(self, "Schedules")
        self.functions = self._functions(code, asking, schedules.dead_letters)
        self.storage.protect(collectors=[self.functions[name].role for name in COLLECTORS])
        lambdas: dict[str, lambda_.IFunction] = {name: one.function for name, one in self.functions.items()}
        schedules.every("Sweep", SWEEP_MINUTES, lambdas["sweeper"])
        schedules.every("Compact", COMPACT_MINUTES, lambdas["compactor"])
        served = {name: one for name, one in lambdas.items() if SIZES[name].caller == "api"}
        self.api = Api(self, "Api", deployment=deployment, functions=served)
        if self.queues is not None:
            self._replicate(self.queues, schedules, lambdas)
        if deployment.spark is not None:
            self._run_spark(deployment.spark)
        observability = Observability(
            self,
            "Observability",
            deployment=deployment,
            stage=self.stack_name,
            api=self.api.api,
            functions=lambdas,
            table=self.storage.table,
            dead_letters=schedules.dead_letters,
            queues=self.queues,
        )
        for name, value, description in (
            ("Url", self.api.url, "The API, for fenceline --url"),
            ("Bucket", self.storage.bucket.bucket_name, "The objects: s3://"),
            ("Table", self.storage.table.table_name, "The items: dynamodb://"),
            ("Dashboard", observability.dashboard.dashboard_name, "The dashboard, in CloudWatch"),
        ):
            cdk.CfnOutput(self, name, value=value, description=description)

    def _replicate(
        self, queues: ReplicationQueues, schedules: Schedules, lambdas: Mapping[str, lambda_.IFunction]
    ) -> None:
        """Let peers ask this region, and let news, its own and theirs, reach the replicator."""
        for name, other in self._deployment.peers.items():
            if not other.bucket:
                cdk.Annotations.of(self).add_warning_v2(
                    f"fenceline:PeerWithoutBucket[{name}]",
                    f"-c peers names no bucket for {name}, so no segment is fetched from there: add its output Bucket",
                )
        report_segments(self.storage.bucket, queues.news)
        queues.feed(lambdas["notifier"], lambdas["replicator"])
        schedules.every("Replicate", REPLICATE_MINUTES, lambdas["replicator"])
        offered = ForPeers(
            self, "ForPeers", stack=self._named, among=self._peers, api=self.api.api, bucket=self.storage.bucket
        )
        cdk.CfnOutput(self, "Queue", value=queues.pull.queue_url, description="For -c peers of other deployments")
        cdk.CfnOutput(self, "PeerRole", value=offered.role.role_arn, description="For -c peers of other deployments")

    def _run_spark(self, settings: SparkSettings) -> None:
        spark = Spark(self, "Spark", deployment=self._deployment, settings=settings, api=self.api.api)
        for name, value, description in (
            ("SparkApplication", spark.application.attr_application_id, "EMR Serverless's, for start-job-run"),
            ("SparkRole", spark.role.role_arn, "The jobs' execution role"),
            ("SparkBucket", spark.bucket.bucket_name, "The jobs' checkpoints/, jobs/ and logs/"),
        ):
            cdk.CfnOutput(self, name, value=value, description=description)

    def _functions(self, code: Path, asking: Path | None, dead_letters: sqs.IQueue) -> Mapping[str, Function]:
        asset = lambda_.Code.from_asset(str(code))
        asset_asking = lambda_.Code.from_asset(str(asking or code)) if self._peers else asset
        settings = Settings(
            objects=f"s3://{self.storage.bucket.bucket_name}",
            items=f"dynamodb://{self.storage.table.table_name}",
            region=self.region,
            service=self.stack_name,
            log_level=self._deployment.log_level,
            tracing=self._deployment.tracing,
            aws_sdk="botocore",  # boto3's session takes 5 % of a cold start, for profiles that no function has
            peers=tuple(peer.settings for peer in self._peers),
            queue=self.queues.pull.queue_url if self.queues else "",
        )
        may = self._may()
        names = (*FUNCTIONS, *WITH_PEERS) if self._peers else FUNCTIONS
        # Roles that peers, and their policies, know by name.
        known = {"notifier": NEWS, "replicator": PULL, "admin": ADMIN} if self._peers else {}
        return {
            name: Function(
                self,
                name.capitalize(),
                name=name,
                deployment=self._deployment,
                code=asset_asking if name in ASKING_PEERS else asset,
                settings=settings,
                may=may[name],
                dead_letters=dead_letters if SIZES[name].caller == "clock" else None,
                role_name=f"{self._named}-{known[name]}" if name in known else None,
            )
            for name in names
        }

    def _may(self) -> Mapping[str, Sequence[iam.PolicyStatement]]:
        store = self.storage
        # A function that meets the end of a transaction finishes it ("Meeting a transaction"). A group's offset that it
        # commits forgets individual acknowledgements, and so deletes the items of their ranges.
        settles = store.deletes_items("acknowledged")
        return {
            # Creates a topic's object where one is missing, before it acknowledges (protocol, "Topic objects").
            "produce": [
                *store.reads("log", "state", "topic"),
                *store.creates("log", "topic"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
                *settles,
            ],
            # Renews the lease of a session that reads, and fences what a severed one still writes, before it answers.
            # Ends the transaction that holds a reader up: markers are appends, and its offsets are items.
            "read": [
                *store.reads("log", "state", "topic", "compacted"),
                *store.creates("log", "topic"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
                *settles,
            ],
            "subscriptions": [
                *store.reads("log", "state", "topic", "compacted"),
                *store.creates("log", "topic"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS, "DeleteItem"),
            ],
            # Markers are appends.
            "sessions": [
                *store.reads("log", "state", "topic"),
                *store.creates("log", "topic"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
            ],
            # Markers are appends. A transaction's item is never deleted here: the sweeper expires it. What is deleted
            # here is what an application has committed.
            "transactions": [
                *store.reads("log", "state", "topic"),
                *store.creates("log"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
                *store.deletes_items("acknowledged", "once"),
            ],
            # SEALs are appends; a trim makes state objects, a compaction a view. It asks for the store's time, too, by
            # an object that the sweeper deletes.
            "admin": [
                *store.reads("log", "state", "topic", "compacted", "clock"),
                *store.creates("log", "state", "topic", "compacted", "clock"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS, "DeleteItem"),
                *self._asks_peers(),
            ],
            "sweeper": [
                *store.reads("log", "state", "topic", "compacted", "clock"),
                *store.creates("log", "state", "topic", "compacted", "clock"),
                *store.deletes("log", "state", "topic", "compacted", "clock"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS, "DeleteItem"),
            ],
            "compactor": [
                *store.reads("log", "state", "compacted", "clock"),
                *store.creates("compacted", "clock"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
            ],
            **self._may_with_peers(),
        }

    def _may_with_peers(self) -> Mapping[str, Sequence[iam.PolicyStatement]]:
        """Return the permissions of the functions that exist only with peers."""
        store, queues = self.storage, self.queues
        if queues is None:
            return {}
        return {
            # The topic's object says which topic a segment belongs to, and which regions the topic names.
            "notifier": [
                *store.reads("topic"),
                *queues.reads(queues.news),
                *queues.sends(*(peer.queue for peer in self._peers)),
            ],
            # Appends what it took, and markers. Moves cursors, which forgets acknowledged ranges; makes subscriptions.
            "replicator": [
                *store.reads("log", "state", "topic"),
                *store.creates("log", "topic"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
                *store.deletes_items("acknowledged"),
                *store.deletes_items("unowned"),
                *queues.reads(queues.pull),
                *queues.sends(),
                *self._asks_peers(),
            ],
        }

    def _asks_peers(self) -> list[iam.PolicyStatement]:
        """Return statements for asking the peers: to take the role that each has for that, and to read its address."""
        roles = [peer.role for peer in self._peers]
        parameters = [arn for peer in self._peers for arn in peer.parameters]
        asked = (("sts:AssumeRole", roles), ("ssm:GetParameter", parameters))
        return [iam.PolicyStatement(actions=[action], resources=found) for action, found in asked if found]
