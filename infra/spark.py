"""Spark on AWS: an application of EMR Serverless, and a role for its jobs.

Rule: a job reaches the log as every client does, by signed requests and by the URLs in their answers. Its role has no
access to the log's bucket or table.

Rule: between jobs nothing runs, and nothing is paid but what the bucket keeps.

This was synthesised and checked, but never run on AWS. It is off unless ``-c spark=true`` is given.

Not here: the jobs themselves (``lib/fenceline_spark``).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.context import Deployment, SparkSettings
from infra.invoking import grant
from infra.nag import accept
from infra.spark_requests import REQUESTS

# The bound of all jobs together, so that a mistake costs at most this. A job that needs more waits.
MAXIMUM = emr.CfnApplication.MaximumAllowedResourcesProperty(cpu="32 vCPU", memory="128 GB", disk="640 GB")
IDLE_MINUTES = 5
PYTHON = "./environment/bin/python"


class Spark(Construct):
    """An application, its jobs' role, and a bucket for their checkpoints, scripts and logs."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        settings: SparkSettings,
        api: apigateway.HttpApi,
    ) -> None:
        super().__init__(scope, id)
        self.bucket = self._bucket(deployment)
        environment_url, environment_arn = self._environment(settings.environment)
        self.application = emr.CfnApplication(
            self,
            "Application",
            type="Spark",
            name=f"{cdk.Stack.of(self).stack_name}-spark",
            release_label=settings.release,
            architecture="X86_64",
            maximum_capacity=MAXIMUM,
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                s3_monitoring_configuration=emr.CfnApplication.S3MonitoringConfigurationProperty(
                    log_uri=self.bucket.s3_url_for_object("logs/")
                )
            ),
            runtime_configuration=[
                emr.CfnApplication.ConfigurationObjectProperty(
                    classification="spark-defaults", properties=self._defaults(environment_url, api)
                )
            ],
        )
        self.role = self._role(environment_arn, api)

    def _bucket(self, deployment: Deployment) -> s3.Bucket:
        """Return the jobs' own bucket, kept as the log's is, because a lost checkpoint may cost a query its place."""
        bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            lifecycle_rules=[
                s3.LifecycleRule(id="logs", prefix="logs/", expiration=cdk.Duration.days(deployment.log_days)),
                s3.LifecycleRule(id="incomplete-uploads", abort_incomplete_multipart_upload_after=cdk.Duration.days(1)),
            ],
            removal_policy=cdk.RemovalPolicy.RETAIN if deployment.keeps_data else cdk.RemovalPolicy.DESTROY,
        )
        accept(bucket, "S1", "jobs write files of their own here; CloudTrail's data events record each caller")
        return bucket

    def _environment(self, given: str) -> tuple[str, str]:
        """Return the packed virtual environment's URL and ARN; one on this machine is uploaded with the stack."""
        if given.startswith("s3://"):
            return given, f"arn:{cdk.Stack.of(self).partition}:s3:::{given.removeprefix('s3://')}"
        asset = assets.Asset(self, "Environment", path=str(Path(given).resolve()))
        return asset.s3_object_url, asset.bucket.arn_for_objects(asset.s3_object_key)

    def _defaults(self, environment_url: str, api: apigateway.HttpApi) -> dict[str, str]:
        """Return the settings of each job: the packed Python, the service's URL, and the region of signatures."""
        region = cdk.Stack.of(self).region
        return {
            "spark.archives": f"{environment_url}#environment",
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
            "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
            "spark.emr-serverless.driverEnv.FENCELINE_URL": api.api_endpoint,
            "spark.emr-serverless.driverEnv.FENCELINE_AWS_REGION": region,
            "spark.executorEnv.FENCELINE_AWS_REGION": region,
        }

    def _role(self, environment_arn: str, api: apigateway.HttpApi) -> iam.Role:
        stack = cdk.Stack.of(self)
        only_by_this_application = {
            "StringEquals": {"aws:SourceAccount": stack.account},
            "ArnEquals": {"aws:SourceArn": self.application.attr_arn},
        }
        role = iam.Role(
            self,
            "Role",
            description="What fenceline's jobs of Spark may do",
            assumed_by=iam.ServicePrincipal("emr-serverless.amazonaws.com", conditions=only_by_this_application),
        )
        objects = self.bucket.arn_for_objects
        for actions, resources in (
            (["s3:GetObject"], [environment_arn, objects("jobs/*")]),
            (["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], [objects("checkpoints/*")]),
            (["s3:GetObject", "s3:PutObject"], [objects("logs/*")]),
            (["s3:ListBucket"], [self.bucket.bucket_arn]),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))
        bucket = stack.get_logical_id(cast(cdk.CfnElement, self.bucket.node.default_child))
        for prefix in ("jobs", "checkpoints", "logs"):
            because = "a prefix is the narrowest there is: jobs name their files while they run"
            accept(role, f"IAM5[Resource::<{bucket}.Arn>/{prefix}/*]", because)
        grant(role, api, REQUESTS, because="topics, transactions and groups are named while it runs")
        return role
