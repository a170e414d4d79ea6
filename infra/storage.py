"""The bucket and the table: the only things of a region that can't be made again.

Rule: the stores' own policies keep what the protocol depends on, whatever credentials a program has: an object of the
log is created once (I1), and only the collector deletes (I6).

Not here: what each function may do (``regional_stack``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from fenceline.adapters.aws.dynamodb import PARTITION, SORT
from infra.context import Deployment
from infra.nag import accept

CREATED_ONCE = ("log", "state", "topic", "compacted")  # the prefixes of all keys that last
PREFIXES = (*CREATED_ONCE, "clock")
TTL = "expires_at"  # in seconds; DynamoDB deletes items that have it, some time after it


class Storage(Construct):
    """A region's objects and items."""

    def __init__(self, scope: Construct, id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        removal = cdk.RemovalPolicy.RETAIN if deployment.keeps_data else cdk.RemovalPolicy.DESTROY
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=False,  # because nothing is overwritten, and what is collected should be gone
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            lifecycle_rules=[
                s3.LifecycleRule(id="incomplete-uploads", abort_incomplete_multipart_upload_after=cdk.Duration.days(1))
            ],
            removal_policy=removal,
        )
        accept(
            self.bucket,
            "S1",
            "an access log would add an object for each of ours; CloudTrail's data events record each caller",
        )
        self.table = dynamodb.TableV2(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=PARTITION, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SORT, type=dynamodb.AttributeType.STRING),
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=TTL,
            deletion_protection=deployment.deletion_protection,
            removal_policy=removal,
        )

        self._accept_prefixes()

    def protect(self, *, collectors: Sequence[iam.IRole]) -> None:
        """Let the bucket itself refuse what would break the log, to every caller.

        Args:
            collectors: The roles that may delete objects.
        """
        self.bucket.add_to_resource_policy(self._create_once())
        # A bucket that is not kept must be emptied first, which an administrator must be able to do.
        if self._deployment.keeps_data:
            self.bucket.add_to_resource_policy(self._delete_by(collectors))

    def reads(self, *prefixes: str) -> list[iam.PolicyStatement]:
        """Return statements that allow reading these prefixes, and listing, without which S3 answers 403, not 404."""
        return [
            iam.PolicyStatement(actions=["s3:GetObject"], resources=self._objects(prefixes)),
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.bucket.bucket_arn]),
        ]

    def creates(self, *prefixes: str) -> list[iam.PolicyStatement]:
        """Return a statement that allows creating objects with these prefixes."""
        return [iam.PolicyStatement(actions=["s3:PutObject"], resources=self._objects(prefixes))]

    def deletes(self, *prefixes: str) -> list[iam.PolicyStatement]:
        """Return a statement that allows deleting objects with these prefixes."""
        return [iam.PolicyStatement(actions=["s3:DeleteObject"], resources=self._objects(prefixes))]

    def items(self, *actions: str) -> list[iam.PolicyStatement]:
        """Return a statement that allows actions on the table. A transaction needs those of all of its parts."""
        return [iam.PolicyStatement(actions=[f"dynamodb:{one}" for one in actions], resources=[self.table.table_arn])]

    def deletes_items(self, *prefixes: str) -> list[iam.PolicyStatement]:
        """Return a statement that allows deleting only items whose partition key is below one of these, by a slash."""
        conditions = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{prefix}/*" for prefix in prefixes]}}
        return [
            iam.PolicyStatement(
                actions=["dynamodb:DeleteItem"], resources=[self.table.table_arn], conditions=conditions
            )
        ]

    def _objects(self, prefixes: Sequence[str]) -> list[str]:
        return [self.bucket.arn_for_objects(f"{prefix}/*") for prefix in prefixes]

    def _accept_prefixes(self) -> None:
        stack = cdk.Stack.of(self)
        bucket = stack.get_logical_id(cast(cdk.CfnElement, self.bucket.node.default_child))
        for prefix in PREFIXES:
            finding = f"IAM5[Resource::<{bucket}.Arn>/{prefix}/*]"
            accept(stack, finding, "a prefix is the narrowest there is: the objects' names are made while it runs")

    def _create_once(self) -> iam.PolicyStatement:
        """Return the refusal of a put that would overwrite, so that none reaches the log (I1).

        S3 knows no other value of the header than ``*``.
        """
        conditions: dict[str, dict[str, str]] = {"Null": {"s3:if-none-match": "true"}}
        if self._deployment.restore_role:
            conditions["ArnNotEquals"] = {"aws:PrincipalArn": self._deployment.restore_role}
        return iam.PolicyStatement(
            sid="CreateOnce",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:PutObject"],
            resources=self._objects(CREATED_ONCE),
            conditions=conditions,
        )

    def _delete_by(self, collectors: Sequence[iam.IRole]) -> iam.PolicyStatement:
        """Return the refusal of deletions by any but the collector, which deletes after its grace (I6)."""
        return iam.PolicyStatement(
            sid="DeleteByCollector",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:DeleteObject", "s3:DeleteObjectVersion"],
            resources=[self.bucket.arn_for_objects("*")],
            conditions={"ArnNotEquals": {"aws:PrincipalArn": [role.role_arn for role in collectors]}},
        )
