"""One region: its stores, its functions, its API, its schedules and its alarms, put together and granted.

Rule: what each function may do is written here, in one table, with the reason where it is not plain.
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
from infra.api import Api
from infra.context import Deployment
from infra.functions import SIZES, Function
from infra.observability import Observability
from infra.schedules import COMPACT_MINUTES, SWEEP_MINUTES, Schedules
from infra.storage import Storage

_READS_ITEMS = ("GetItem", "BatchGetItem", "Query")
_WRITES_ITEMS = ("PutItem", "ConditionCheckItem")
COLLECTORS = ("sweeper",)


class RegionalStack(cdk.Stack):
    """fenceline in one region.

    Args:
        code: The directory of the functions' bundle.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        code: Path,
        env: cdk.Environment,
    ) -> None:
        super().__init__(scope, id, env=env, description="fenceline: a partitioned log on object storage")
        self._deployment = deployment
        self.storage = Storage(self, "Storage", deployment=deployment)
        schedules = Schedules(self, "Schedules")
        self.functions = self._functions(code, schedules.dead_letters)
        self.storage.protect(collectors=[self.functions[name].role for name in COLLECTORS])
        lambdas: dict[str, lambda_.IFunction] = {name: one.function for name, one in self.functions.items()}
        schedules.every("Sweep", SWEEP_MINUTES, lambdas["sweeper"])
        schedules.every("Compact", COMPACT_MINUTES, lambdas["compactor"])
        served = {name: one for name, one in lambdas.items() if not SIZES[name].is_scheduled}
        self.api = Api(self, "Api", deployment=deployment, functions=served)
        observability = Observability(
            self,
            "Observability",
            deployment=deployment,
            stage=self.stack_name,
            api=self.api.api,
            functions=lambdas,
            table=self.storage.table,
            dead_letters=schedules.dead_letters,
        )
        for name, value, description in (
            ("Url", self.api.url, "The API, for fenceline --url"),
            ("Bucket", self.storage.bucket.bucket_name, "The objects: s3://"),
            ("Table", self.storage.table.table_name, "The items: dynamodb://"),
            ("Dashboard", observability.dashboard.dashboard_name, "The dashboard, in CloudWatch"),
        ):
            cdk.CfnOutput(self, name, value=value, description=description)

    def _functions(self, code: Path, dead_letters: sqs.IQueue) -> Mapping[str, Function]:
        asset = lambda_.Code.from_asset(str(code))
        settings = Settings(
            objects=f"s3://{self.storage.bucket.bucket_name}",
            items=f"dynamodb://{self.storage.table.table_name}",
            region=self.region,
            service=self.stack_name,
            log_level=self._deployment.log_level,
            tracing=self._deployment.tracing,
            aws_sdk="botocore",  # since boto3's session takes 5 % of a cold start, for profiles that no function has
        )
        may = self._may()
        return {
            name: Function(
                self,
                name.capitalize(),
                name=name,
                deployment=self._deployment,
                code=asset,
                settings=settings,
                may=may[name],
                dead_letters=dead_letters if size.is_scheduled else None,
            )
            for name, size in SIZES.items()
        }

    def _may(self) -> Mapping[str, Sequence[iam.PolicyStatement]]:
        store = self.storage
        # A function that meets the end of a transaction finishes it ("Meeting a transaction"). A group's offset that it
        # commits forgets individual acknowledgements, and so deletes the items of their ranges.
        settles = store.deletes_items("acknowledged")
        return {
            # Creates a topic's object where one is missing, before it acknowledges (DESIGN.md, "Topic objects").
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
            # Markers are appends. A transaction's item is never deleted here: the sweeper expires it.
            "transactions": [
                *store.reads("log", "state", "topic"),
                *store.creates("log"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
                *settles,
            ],
            # SEALs are appends; a trim makes state objects, a compaction a view.
            "admin": [
                *store.reads("log", "state", "topic", "compacted"),
                *store.creates("log", "state", "topic", "compacted"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS, "DeleteItem"),
            ],
            "sweeper": [
                *store.reads("log", "state", "topic", "compacted", "clock"),
                *store.creates("log", "state", "topic", "compacted", "clock"),
                *store.deletes("log", "state", "topic", "compacted", "clock"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS, "DeleteItem"),
            ],
            "compactor": [
                *store.reads("log", "state", "compacted"),
                *store.creates("compacted"),
                *store.items(*_READS_ITEMS, *_WRITES_ITEMS),
            ],
        }
