"""What the stacks say, where the emulator does not show it: policies, alarms, retention. It needs no account."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from fenceline.format import keys
from fenceline.settings import Settings
from fenceline_http import routes
from functions import FUNCTIONS
from functions.telemetry import metric_names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
PAGER = "arn:aws:sns:eu-west-1:123456789012:pager"
Resources = Mapping[str, Any]


@pytest.fixture
def template(plain: Resources) -> Resources:
    return plain


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: one for name, one in template["Resources"].items() if one["Type"] == kind}


def only(template: Mapping[str, Any], kind: str) -> Any:
    [found] = of_type(template, kind).values()
    return found


def statements(template: Mapping[str, Any], function: str) -> Iterator[dict[str, Any]]:
    """Yield what a function's role may do."""
    for one in of_type(template, "AWS::IAM::Policy").values():
        if any(role["Ref"].startswith(f"{function.capitalize()}Role") for role in one["Properties"]["Roles"]):
            yield from one["Properties"]["PolicyDocument"]["Statement"]


def actions(template: Mapping[str, Any], function: str) -> set[str]:
    found: set[str] = set()
    for statement in statements(template, function):
        action = statement["Action"]
        found |= {action} if isinstance(action, str) else set(action)
    return found


# Storage


def test_the_bucket_is_closed_encrypted_and_outlives_the_stack(template: Resources) -> None:
    bucket = only(template, "AWS::S3::Bucket")
    properties = bucket["Properties"]
    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
    assert all(properties["PublicAccessBlockConfiguration"].values())
    assert "VersioningConfiguration" not in properties
    assert properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    [rule] = properties["LifecycleConfiguration"]["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert "ExpirationInDays" not in rule


def policy(template: Resources) -> dict[str, Any]:
    found = only(template, "AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"]
    return {one.get("Sid", json.dumps(one["Condition"])): one for one in found}


def test_the_bucket_refuses_every_put_without_the_condition(template: Resources) -> None:
    statement = policy(template)["CreateOnce"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", {"AWS": "*"}, "s3:PutObject")
    assert statement["Condition"] == {"Null": {"s3:if-none-match": "true"}}
    paths = [resource["Fn::Join"][1][-1] for resource in statement["Resource"]]
    assert paths == ["/log/*", "/state/*", "/topic/*", "/compacted/*"]


def test_the_bucket_refuses_a_deletion_by_all_but_the_collector(stacks: ModuleType, template: Resources) -> None:
    statement = policy(template)["DeleteByCollector"]
    assert (statement["Effect"], statement["Principal"]) == ("Deny", {"AWS": "*"})
    assert set(statement["Action"]) == {"s3:DeleteObject", "s3:DeleteObjectVersion"}
    [excepted] = statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
    assert excepted["Fn::GetAtt"][0].startswith("SweeperRole")
    assert [name for name in stacks.SIZES if "s3:DeleteObject" in actions(template, name)] == list(stacks.COLLECTORS)


def test_the_bucket_takes_tls_only(template: Resources) -> None:
    assert any("aws:SecureTransport" in condition for condition in policy(template))


def test_the_table_is_paid_by_the_request_and_can_be_brought_back(template: Resources) -> None:
    table = only(template, "AWS::DynamoDB::GlobalTable")
    properties = table["Properties"]
    [replica] = properties["Replicas"]
    assert table["DeletionPolicy"] == "Retain"
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert replica["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert replica["DeletionProtectionEnabled"] is True
    assert properties["TimeToLiveSpecification"]["Enabled"] is True
    assert "StreamSpecification" not in properties


def test_data_is_deleted_with_its_stack_only_where_that_was_asked(stacks: ModuleType, make: Callable[..., Any]) -> None:
    stack = make(keeps_data=False, deletion_protection=False)
    template = stacks.template_of(stack)
    assert only(template, "AWS::S3::Bucket")["DeletionPolicy"] == "Delete"
    assert only(template, "AWS::DynamoDB::GlobalTable")["DeletionPolicy"] == "Delete"
    # An administrator must still be able to empty it.
    assert "DeleteByCollector" not in policy(template)


def test_only_the_role_that_was_named_may_bring_objects_back(stacks: ModuleType, make: Callable[..., Any]) -> None:
    role = "arn:aws:iam::123456789012:role/restore"
    template = stacks.template_of(make(restore_role=role))
    assert policy(template)["CreateOnce"]["Condition"]["ArnNotEquals"] == {"aws:PrincipalArn": role}


# Functions


def test_every_function_has_a_role_of_its_own_and_the_settings_of_its_region(
    stacks: ModuleType, template: Resources
) -> None:
    functions = of_type(template, "AWS::Lambda::Function").values()
    assert len({json.dumps(one["Properties"]["Role"]) for one in functions}) == len(functions) == len(FUNCTIONS)
    variables = set(Settings("d").to_env())
    for one in functions:
        properties = one["Properties"]
        assert (properties["Runtime"], properties["Architectures"]) == ("python3.13", ["arm64"])
        assert set(properties["Environment"]["Variables"]) == variables
        assert properties["Environment"]["Variables"]["FENCELINE_REGION"] == stacks.REGION
        assert properties["Environment"]["Variables"]["FENCELINE_SERVICE"] == "Fenceline"
        # boto3 is not in the bundle.
        assert properties["Environment"]["Variables"]["FENCELINE_AWS_SDK"] == "botocore"
    handlers = {one["Properties"]["Handler"] for one in functions}
    assert handlers == {f"functions.{name}.handler" for name in FUNCTIONS}


def test_no_role_may_do_any_action_to_any_resource(template: Resources) -> None:
    for one in of_type(template, "AWS::IAM::Policy").values():
        for statement in one["Properties"]["PolicyDocument"]["Statement"]:
            allowed = statement["Action"]
            assert not any("*" in action for action in ([allowed] if isinstance(allowed, str) else allowed))
            assert statement["Resource"] != "*"
    assert all("ManagedPolicyArns" not in one["Properties"] for one in of_type(template, "AWS::IAM::Role").values())


@pytest.mark.parametrize("function", ["produce", "read", "sessions", "subscriptions"])
def test_functions_that_append_or_fence_create_segments_and_no_states_or_views(
    template: Resources, function: str
) -> None:
    assert created_by(template, function) == ["/log/*", "/topic/*"]
    deletes = [
        "dynamodb:DeleteItem" in one["Action"] for one in statements(template, function) if "Condition" not in one
    ]
    assert any(deletes) == (function == "subscriptions")


def created_by(template: Resources, function: str) -> list[str]:
    """Return the prefixes of the objects that a function's role may create."""
    [creates] = [one for one in statements(template, function) if one["Action"] == "s3:PutObject"]
    resources = creates["Resource"]
    return [resource["Fn::Join"][1][-1] for resource in (resources if isinstance(resources, list) else [resources])]


def test_functions_that_end_transactions_create_segments_and_delete_ranges_alone(
    template: Resources,
) -> None:
    """Every function that may meet a transaction's end may do all of it, and no more than that."""
    assert created_by(template, "transactions") == ["/log/*"]
    for function in ("produce", "read", "transactions"):
        [deletes] = [one for one in statements(template, function) if "dynamodb:DeleteItem" in one["Action"]]
        assert deletes["Action"] == "dynamodb:DeleteItem"
        leading = ["acknowledged/*", "once/*"] if function == "transactions" else ["acknowledged/*"]
        assert deletes["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": leading}}
    for function in ("produce", "read", "subscriptions", "transactions", "sweeper"):
        assert actions(template, function) >= {
            "s3:GetObject",
            "s3:ListBucket",
            "s3:PutObject",
            "dynamodb:PutItem",
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:Query",
        }
    assert keys.chunk_items("s").startswith("acknowledged/")
    assert keys.once_item("app").partition.startswith("once/")


def test_scheduled_functions_leave_dead_letters_and_are_not_repeated(template: Resources) -> None:
    schedules = of_type(template, "AWS::Scheduler::Schedule").values()
    rates = {one["Properties"]["ScheduleExpression"] for one in schedules}
    assert rates == {"rate(1 minute)", "rate(15 minutes)"}
    assert all(one["Properties"]["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0 for one in schedules)
    # A clock that goes on while the function is frozen (I4, I7).
    assert {one["Properties"]["Target"]["Input"] for one in schedules} == {'{"time": "<aws.scheduler.scheduled-time>"}'}
    repeated = of_type(template, "AWS::Lambda::EventInvokeConfig").values()
    assert [one["Properties"]["MaximumRetryAttempts"] for one in repeated] == [0, 0]
    functions = of_type(template, "AWS::Lambda::Function").values()
    assert sum("DeadLetterConfig" in one["Properties"] for one in functions) == 2


def polling(template: Resources) -> dict[str, tuple[int | None, str]]:
    """Return, by function, its reserved concurrency and how many polls it holds."""
    return {
        one["Properties"]["Handler"].split(".")[1]: (
            one["Properties"].get("ReservedConcurrentExecutions"),
            one["Properties"]["Environment"]["Variables"]["FENCELINE_POLL_SLOTS"],
        )
        for one in of_type(template, "AWS::Lambda::Function").values()
    }


def test_functions_that_hold_polls_hold_a_hundred_each_and_reserve_nothing_by_default(template: Resources) -> None:
    functions = polling(template)
    assert {name for name, (_, held) in functions.items() if held == "100"} == {"read", "sessions", "subscriptions"}
    assert {reserved for reserved, _ in functions.values()} == {None}
    names = {
        one["Properties"]["Environment"]["Variables"]["FENCELINE_FUNCTION"]
        for one in of_type(template, "AWS::Lambda::Function").values()
    }
    assert names == set(FUNCTIONS)


@pytest.mark.parametrize(("concurrency", "held"), [(1, "1"), (2, "1"), (40, "30"), (101, "75")])
def test_functions_that_hold_polls_get_a_ceiling_above_what_they_hold_and_no_others_do(
    stacks: ModuleType, make: Callable[..., Any], concurrency: int, held: str
) -> None:
    functions = polling(stacks.template_of(make(poll_concurrency=concurrency)))
    assert {name: functions.pop(name) for name in ("read", "sessions", "subscriptions")} == dict.fromkeys(
        ("read", "sessions", "subscriptions"), (concurrency, held)
    )
    assert set(functions.values()) == {(None, "0")}


# The API


def test_the_api_has_exactly_the_routes_of_the_functions_own_table(stacks: ModuleType, template: Resources) -> None:
    declared = {one["Properties"]["RouteKey"] for one in of_type(template, "AWS::ApiGatewayV2::Route").values()}
    assert declared == {f"{method} {route.path}" for route in routes.ROUTES for method in route.methods} | {"$default"}
    assert set(get_args(routes.Function)) <= set(stacks.SIZES)


def test_every_route_requires_a_signature(template: Resources) -> None:
    authorization = {
        one["Properties"]["AuthorizationType"] for one in of_type(template, "AWS::ApiGatewayV2::Route").values()
    }
    assert authorization == {"AWS_IAM"}


def test_the_api_is_throttled_and_its_log_has_no_path_and_no_query(template: Resources) -> None:
    stage = only(template, "AWS::ApiGatewayV2::Stage")["Properties"]
    throttle = stage["DefaultRouteSettings"]
    assert (throttle["ThrottlingRateLimit"], throttle["ThrottlingBurstLimit"]) == (5_000, 2_000)
    logged = json.loads(stage["AccessLogSettings"]["Format"]).values()
    assert not [one for one in logged if "path" in one.lower() or "query" in one.lower()]


def test_other_origins_are_let_in_only_where_they_were_named(
    stacks: ModuleType, make: Callable[..., Any], template: Resources
) -> None:
    assert "CorsConfiguration" not in only(template, "AWS::ApiGatewayV2::Api")["Properties"]
    made = stacks.template_of(make(cors_origins=("https://example.com",)))
    assert only(made, "AWS::ApiGatewayV2::Api")["Properties"]["CorsConfiguration"]["AllowOrigins"] == [
        "https://example.com"
    ]
    unsigned = {
        one["Properties"]["RouteKey"]
        for one in of_type(made, "AWS::ApiGatewayV2::Route").values()
        if one["Properties"]["AuthorizationType"] == "NONE"
    }
    assert unsigned == {"OPTIONS /{proxy+}"}


# Alarms


def test_there_is_an_alarm_for_each_metric_that_needs_action(template: Resources) -> None:
    alarms = {
        (one["Properties"]["Namespace"], one["Properties"]["MetricName"])
        for one in of_type(template, "AWS::CloudWatch::Alarm").values()
    }
    assert alarms >= {
        (metric_names.NAMESPACE, metric_names.CORRUPT_LOG),
        (metric_names.NAMESPACE, metric_names.CONTENDED),
        (metric_names.NAMESPACE, metric_names.TRANSACTIONS_HANGING),
        (metric_names.NAMESPACE, metric_names.TRANSACTIONS_OVERDUE),
        (metric_names.NAMESPACE, metric_names.TRANSACTIONS_AHEAD),
        ("AWS/ApiGateway", "5xx"),
        ("AWS/Lambda", "Errors"),
        ("AWS/Lambda", "Throttles"),
        ("AWS/Lambda", "Invocations"),
        ("AWS/DynamoDB", "WriteThrottleEvents"),
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    }


def test_one_damaged_log_is_enough_for_an_alarm(template: Resources) -> None:
    [alarm] = [
        one["Properties"]
        for one in of_type(template, "AWS::CloudWatch::Alarm").values()
        if one["Properties"]["MetricName"] == metric_names.CORRUPT_LOG
    ]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
    assert alarm["Dimensions"] == [{"Name": metric_names.SERVICE, "Value": "Fenceline"}]


def test_a_sweeper_that_does_not_run_is_an_alarm(template: Resources) -> None:
    [alarm] = [
        one["Properties"]
        for one in of_type(template, "AWS::CloudWatch::Alarm").values()
        if one["Properties"]["MetricName"] == "Invocations"
    ]
    assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("LessThanThreshold", "breaching")


def test_alarms_go_to_the_given_topic(stacks: ModuleType, make: Callable[..., Any]) -> None:
    stack = make(alarm_topics={"eu-west-1": PAGER, "us-east-1": "another"})
    alarms = of_type(stacks.template_of(stack), "AWS::CloudWatch::Alarm").values()
    assert all(one["Properties"]["AlarmActions"] == [PAGER] for one in alarms)
    assert stacks.warnings_of(stack) == []


@pytest.mark.parametrize("topics", [{}, {"us-east-1": "another"}], ids=["no topic", "only another region's"])
def test_a_region_whose_alarms_have_no_action_is_a_warning(
    stacks: ModuleType, make: Callable[..., Any], topics: Mapping[str, str]
) -> None:
    [warning] = stacks.warnings_of(make(alarm_topics=topics))
    assert "the alarms of eu-west-1 have no action" in warning
    assert "-c alarm_topics=arn:aws:sns:eu-west-1:ACCOUNT:NAME" in warning


def test_logs_are_kept_for_the_time_that_was_named(stacks: ModuleType, make: Callable[..., Any]) -> None:
    template = stacks.template_of(make(log_days=90))
    assert {one["Properties"]["RetentionInDays"] for one in of_type(template, "AWS::Logs::LogGroup").values()} == {90}


# The rules of others


EVERYTHING = {
    "tracing": True,
    "cors_origins": ("https://example.com",),
    "alarm_topics": {"eu-west-1": PAGER},
    "poll_concurrency": 40,
}
FOR_A_TRIAL = {"auth": "none", "keeps_data": False, "deletion_protection": False}


@pytest.mark.parametrize(
    "deployments", [[EVERYTHING], pytest.param([{}, FOR_A_TRIAL], marks=pytest.mark.prove)], ids=["most", "least"]
)
def test_aws_solutions_and_cfn_lint_find_nothing(
    lint: Callable[..., None], deployments: Sequence[Mapping[str, Any]]
) -> None:
    lint(deployments)


def test_aws_solutions_is_really_asked(stacks: ModuleType, make: Callable[..., Any]) -> None:
    stack = make()
    stacks.add_open_bucket(stack)
    with pytest.raises(RuntimeError, match="Validation"):
        stacks.synth(stack)


def test_a_wrong_word_ends_the_synthesis_with_one_line(stacks: ModuleType) -> None:
    env = {"CDK_CONTEXT_JSON": json.dumps({"regions": "us-east-9"}), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    env["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "1"
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    printed = [line for line in done.stderr.splitlines() if line.startswith("fenceline: ")]
    assert printed == [
        "fenceline: there is no region us-east-9; write them as AWS does: -c regions=us-east-1,eu-west-1"
    ]
    assert "Traceback" not in done.stderr
