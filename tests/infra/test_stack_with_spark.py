"""What a stack has where ``-c spark=true`` is given: an application, a role that reads no bucket of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra.context import SparkSettings

pytestmark = pytest.mark.slow

RELEASE = "emr-spark-9.0.0"
ON_S3 = "s3://packed/pyspark-env.tar.gz"


@pytest.fixture(scope="module")
def template(stacks: ModuleType, make: Callable[..., Any]) -> Mapping[str, Any]:
    resources: Mapping[str, Any] = stacks.template_of(make(spark=SparkSettings(RELEASE, ON_S3)))
    return resources


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: one["Properties"] for name, one in template["Resources"].items() if one["Type"] == kind}


def statements(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the jobs may do."""
    for one in of_type(template, "AWS::IAM::Policy").values():
        if any(role["Ref"].startswith("SparkRole") for role in one["Roles"]):
            yield from one["PolicyDocument"]["Statement"]


def test_without_it_nothing_of_spark_is_made(plain: Mapping[str, Any]) -> None:
    assert not of_type(plain, "AWS::EMRServerless::Application")
    assert not [name for name in plain["Resources"] if name.startswith("Spark")]
    assert not [name for name in plain["Outputs"] if name.startswith("Spark")]


def test_the_application_is_bounded_and_stops_by_itself(template: Mapping[str, Any]) -> None:
    [application] = of_type(template, "AWS::EMRServerless::Application").values()
    assert (application["Type"], application["ReleaseLabel"]) == ("Spark", RELEASE)
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert application["MaximumCapacity"]["Cpu"] == "32 vCPU"
    assert "InitialCapacity" not in application


def test_its_jobs_start_with_the_packed_python_and_the_address(template: Mapping[str, Any]) -> None:
    [application] = of_type(template, "AWS::EMRServerless::Application").values()
    [defaults] = application["RuntimeConfiguration"]
    properties = defaults["Properties"]
    assert defaults["Classification"] == "spark-defaults"
    assert properties["spark.archives"] == f"{ON_S3}#environment"
    assert properties["spark.executorEnv.PYSPARK_PYTHON"] == "./environment/bin/python"
    assert properties["spark.emr-serverless.driverEnv.FENCELINE_URL"]["Fn::GetAtt"][1] == "ApiEndpoint"
    assert properties["spark.executorEnv.FENCELINE_AWS_REGION"] == "eu-west-1"


def test_only_jobs_of_this_application_get_the_role(template: Mapping[str, Any]) -> None:
    [role] = [one for name, one in of_type(template, "AWS::IAM::Role").items() if name.startswith("SparkRole")]
    [trust] = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    assert trust["Condition"]["ArnEquals"]["aws:SourceArn"]["Fn::GetAtt"][0].startswith("SparkApplication")
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert "ManagedPolicyArns" not in role


def test_a_job_reaches_neither_the_logs_bucket_nor_its_table(template: Mapping[str, Any]) -> None:
    found = list(statements(template))
    granted = [one["Action"] for one in found]
    actions = {action for one in granted for action in ([one] if isinstance(one, str) else one)}
    assert actions == {"execute-api:Invoke", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"}
    named = json.dumps(found)
    assert "StorageBucket" not in named
    assert "StorageTable" not in named
    [deleting] = [one for one in found if "s3:DeleteObject" in one["Action"]]
    assert json.dumps(deleting["Resource"]).endswith('/checkpoints/*"]]}')


def test_a_job_makes_no_topic_and_deletes_nothing_of_the_log(template: Mapping[str, Any]) -> None:
    [invoking] = [one for one in statements(template) if one["Action"] == "execute-api:Invoke"]
    asked = {"".join(part for part in one["Fn::Join"][1] if isinstance(part, str)) for one in invoking["Resource"]}
    requests = {one.partition("/$default/")[2] for one in asked}
    assert "GET/v1/topics/*" in requests
    assert "POST/v1/transactions/end" in requests
    assert {one.partition("/")[0] for one in requests} == {"GET", "POST"}
    assert not requests & {"POST/v1/topics", "POST/v1/topics/*", "POST/*", "GET/*"}


def test_an_environment_of_this_machine_is_uploaded_and_readable(
    stacks: ModuleType, make: Callable[..., Any], tmp_path: Path
) -> None:
    packed = tmp_path / "pyspark-env.tgz"
    packed.write_bytes(b"packed")
    made = stacks.template_of(make(spark=SparkSettings(RELEASE, str(packed))))
    [application] = of_type(made, "AWS::EMRServerless::Application").values()
    archives = json.dumps(application["RuntimeConfiguration"][0]["Properties"]["spark.archives"])
    assert "cdk-" in archives
    assert ".tgz" in archives
    assert "cdk-" in json.dumps(next(one for one in statements(made) if one["Action"] == "s3:GetObject"))


def test_aws_solutions_and_cfn_lint_find_nothing(lint: Callable[..., None]) -> None:
    lint([{"spark": SparkSettings(RELEASE, ON_S3)}])
