"""What a stack with peers says beside the rest: queues, roles, trust, alarms. Without peers none of it exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fenceline.settings import PEER_SESSION, PeerSettings, Settings
from fenceline_cli import prices
from fenceline_http import routes
from functions import FUNCTIONS, WITH_PEERS
from functions.telemetry import metric_names
from infra import replication
from infra.peers import OtherDeployment
from tests.infra.test_stack import actions, of_type, only, statements

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
OTHER = OtherDeployment(
    url="https://there.example.com",
    queue="https://sqs.us-west-2.amazonaws.com/222222222222/Theirs-us-west-2-pull",
    role="arn:aws:iam::222222222222:role/Theirs-us-west-2-peer",
    account="222222222222",
    stack="Theirs-us-west-2",
)
OPTIONS: Mapping[str, Any] = {"regions": ("eu-west-1", "us-east-1"), "peers": {"us-west-2": OTHER}}
# As tokens are written in a template, with our own account.
PSEUDO = {"AWS::Partition": "aws", "AWS::AccountId": "111111111111", "AWS::URLSuffix": "amazonaws.com"}


@pytest.fixture(scope="module")
def template(stacks: ModuleType, make: Callable[..., Any]) -> Mapping[str, Any]:
    resources: Mapping[str, Any] = resolved(stacks.template_of(make(**OPTIONS)))
    return resources


@pytest.fixture(scope="module")
def alone(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    resources: Mapping[str, Any] = resolved(plain)
    return resources


def resolved(value: Any) -> Any:
    """Return a template with its joins made: pseudo parameters as values, other references as ``<name>``."""
    match value:
        case {"Ref": str(name), **rest} if not rest and name in PSEUDO:
            return PSEUDO[name]
        case {"Fn::Join": [str(between), list(parts)]}:
            found = [resolved(part) for part in parts]
            return between.join(one if isinstance(one, str) else reference(one) for one in found)
        case dict():
            return {name: resolved(one) for name, one in value.items()}
        case list():
            return [resolved(one) for one in value]
    return value


def reference(value: Mapping[str, Any]) -> str:
    [(kind, name)] = value.items()
    return f"<{name if kind == 'Ref' else '.'.join(name)}>"


def named(template: Mapping[str, Any], kind: str, begin: str) -> Any:
    """Return the properties of the one resource of this type whose name begins so."""
    [found] = [one["Properties"] for name, one in of_type(template, kind).items() if name.startswith(begin)]
    return found


def policy_of(template: Mapping[str, Any], queue: str) -> list[dict[str, Any]]:
    """Return the statements of a queue's policy that allow something."""
    statements = named(template, "AWS::SQS::QueuePolicy", queue)["PolicyDocument"]["Statement"]
    return [one for one in statements if one["Effect"] == "Allow"]


def is_like(text: str, pattern: str) -> bool:
    """Return True if a pattern of IAM matches: its star matches slashes, too."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


# Without peers


def test_without_peers_none_of_it_exists(alone: Mapping[str, Any]) -> None:
    for kind in ("AWS::SSM::Parameter", "AWS::Lambda::EventSourceMapping"):
        assert of_type(alone, kind) == {}
    assert len(of_type(alone, "AWS::SQS::Queue")) == 1
    assert "NotificationConfiguration" not in only(alone, "AWS::S3::Bucket")["Properties"]
    handlers = {one["Properties"]["Handler"] for one in of_type(alone, "AWS::Lambda::Function").values()}
    assert handlers == {f"functions.{name}.handler" for name in FUNCTIONS}
    assert all("RoleName" not in one["Properties"] for one in of_type(alone, "AWS::IAM::Role").values())
    assert "sts:AssumeRole" not in actions(alone, "admin")
    assert set(alone["Outputs"]) == {"Url", "Bucket", "Table", "Dashboard"}


def test_peers_change_nothing_of_the_function_that_appends(
    template: Mapping[str, Any], alone: Mapping[str, Any]
) -> None:
    """But that it knows their names. Its bundle, its memory and its rights stay as they are (I25)."""

    def produce(resources: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(named(resources, "AWS::Lambda::Function", "ProduceFunction"))
        found["Environment"] = {
            name: value
            for name, value in found["Environment"]["Variables"].items()
            if name not in ("FENCELINE_PEERS", "FENCELINE_QUEUE")
        }
        return found

    assert produce(template) == produce(alone)
    assert [*statements(template, "produce")] == [*statements(alone, "produce")]


# With peers


def test_every_function_knows_the_peers_by_the_names_that_their_own_stacks_give(template: Mapping[str, Any]) -> None:
    functions = of_type(template, "AWS::Lambda::Function").values()
    assert len(functions) == len(FUNCTIONS) + len(WITH_PEERS)
    for one in functions:
        variables = dict(one["Properties"]["Environment"]["Variables"])
        assert set(variables) == set(Settings("d").to_env())
        assert variables["FENCELINE_QUEUE"] == {"Ref": queue_id(template, "QueuesPull")}
        assert json.loads(variables["FENCELINE_PEERS"]) == {
            "us-east-1": {
                "url": "ssm:/fenceline/Fenceline-us-east-1/url",
                "role": "arn:aws:iam::111111111111:role/Fenceline-us-east-1-peer",
                "queue": "https://sqs.us-east-1.amazonaws.com/111111111111/Fenceline-us-east-1-pull",
            },
            "us-west-2": {"url": OTHER.url, "role": OTHER.role, "queue": OTHER.queue},
        }


def queue_id(template: Mapping[str, Any], begin: str) -> str:
    [found] = [name for name in of_type(template, "AWS::SQS::Queue") if name.startswith(begin)]
    return found


def test_the_names_a_stack_computes_of_its_peer_are_the_peers(
    stacks: ModuleType, make: Callable[..., Any], template: Mapping[str, Any]
) -> None:
    """The names are computed on both sides: they must be the same."""
    there = resolved(stacks.template_of(make(region="us-east-1", **OPTIONS)))
    variables = named(template, "AWS::Lambda::Function", "ReplicatorFunction")["Environment"]["Variables"]
    known = json.loads(variables["FENCELINE_PEERS"])["us-east-1"]
    assert f"ssm:{named(there, 'AWS::SSM::Parameter', 'ForPeersUrl')['Name']}" == known["url"]
    bucket = named(there, "AWS::SSM::Parameter", "ForPeersBucket")
    assert PeerSettings("us-east-1", known["url"]).bucket_parameter == bucket["Name"]
    assert bucket["Value"] == {"Ref": next(iter(of_type(there, "AWS::S3::Bucket")))}
    assert known["role"].endswith(f"/{named(there, 'AWS::IAM::Role', 'ForPeersRole')['RoleName']}")
    assert known["queue"].endswith(f"/{named(there, 'AWS::SQS::Queue', 'QueuesPull')['QueueName']}")
    roles = {one["Properties"].get("RoleName") for one in of_type(there, "AWS::IAM::Role").values()} - {None}
    [sends] = [one for one in policy_of(template, "QueuesPull") if one["Sid"] == "NewsOfUsEast1"]
    assert sends["Condition"]["ArnEquals"]["aws:PrincipalArn"].rpartition("/")[2] in roles
    trusted = [arn.rpartition("/")[2] for arn in trust(template)["111111111111"]]
    assert set(trusted) <= roles
    handlers = {
        named(there, "AWS::IAM::Role", f"{name.capitalize()}Role")["RoleName"]: name
        for name in ("replicator", "admin", "notifier")
    }
    assert sorted(handlers[role] for role in trusted) == ["admin", "replicator"]
    assert handlers[sends["Condition"]["ArnEquals"]["aws:PrincipalArn"].rpartition("/")[2]] == "notifier"


def test_the_bucket_reports_new_segments_and_nothing_else_once_it_may(template: Mapping[str, Any]) -> None:
    bucket = only(template, "AWS::S3::Bucket")
    [notification] = bucket["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert notification["Event"] == "s3:ObjectCreated:Put"
    assert notification["Queue"]["Fn::GetAtt"][0].startswith("QueuesNews")
    rules = {one["Name"]: one["Value"] for one in notification["Filter"]["S3Key"]["Rules"]}
    assert rules == {"prefix": "log/", "suffix": ".log"}
    assert [one for one in bucket["DependsOn"] if one.startswith("QueuesNewsPolicy")]
    [sends] = policy_of(template, "QueuesNews")
    assert (sends["Principal"], sends["Action"]) == ({"Service": "s3.amazonaws.com"}, "sqs:SendMessage")
    assert sends["Condition"] == {"StringEquals": {"aws:SourceAccount": "111111111111"}}


def test_only_the_peers_notifiers_send_to_the_queue_of_partitions(template: Mapping[str, Any]) -> None:
    statements = {one["Sid"]: one for one in policy_of(template, "QueuesPull")}
    assert set(statements) == {"NewsOfUsEast1", "NewsOfUsWest2"}
    for sid, account, notifier in (
        ("NewsOfUsEast1", "111111111111", "Fenceline-us-east-1-news"),
        ("NewsOfUsWest2", "222222222222", "Theirs-us-west-2-news"),
    ):
        assert statements[sid]["Principal"] == {"AWS": f"arn:aws:iam::{account}:root"}
        assert statements[sid]["Action"] == "sqs:SendMessage"
        arn = f"arn:aws:iam::{account}:role/{notifier}"
        assert statements[sid]["Condition"] == {"ArnEquals": {"aws:PrincipalArn": arn}}


def test_messages_that_fail_five_times_become_dead_letters_and_all_queues_take_tls_only(
    template: Mapping[str, Any],
) -> None:
    queues = {name: one["Properties"] for name, one in of_type(template, "AWS::SQS::Queue").items()}
    assert all(one["SqsManagedSseEnabled"] for one in queues.values())
    for begin in ("QueuesNews", "QueuesPull"):
        redrive = queues[queue_id(template, begin)]["RedrivePolicy"]
        assert redrive["maxReceiveCount"] == 5
        assert redrive["deadLetterTargetArn"]["Fn::GetAtt"][0] == queue_id(template, "QueuesDeadLetters")
    assert queues[queue_id(template, "QueuesDeadLetters")]["MessageRetentionPeriod"] == 14 * 24 * 3600
    for one in of_type(template, "AWS::SQS::QueuePolicy").values():
        denied = [part for part in one["Properties"]["PolicyDocument"]["Statement"] if part["Effect"] == "Deny"]
        assert [part["Condition"] for part in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_a_call_that_fails_in_part_brings_only_that_part_again(template: Mapping[str, Any]) -> None:
    mappings = [one["Properties"] for one in of_type(template, "AWS::Lambda::EventSourceMapping").values()]
    by_queue = {one["EventSourceArn"]["Fn::GetAtt"][0][:10]: one for one in mappings}
    assert set(by_queue) == {"QueuesNews", "QueuesPull"}
    for queue, function in (("QueuesNews", "Notifier"), ("QueuesPull", "Replicator")):
        assert by_queue[queue]["FunctionName"]["Ref"].startswith(f"{function}Function")
        assert by_queue[queue]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        # A message stays hidden while a call may work on it.
        seconds = named(template, "AWS::SQS::Queue", queue)["VisibilityTimeout"]
        assert seconds > named(template, "AWS::Lambda::Function", f"{function}Function")["Timeout"]


def trust(template: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by account the ARNs of those that may take the role for peers."""
    document = named(template, "AWS::IAM::Role", "ForPeersRole")["AssumeRolePolicyDocument"]
    found = {}
    for one in document["Statement"]:
        assert (one["Effect"], one["Action"], set(one["Condition"])) == (
            "Allow", "sts:AssumeRole", {"ArnEquals", "StringEquals"}
        )  # fmt: skip
        account = one["Principal"]["AWS"].removeprefix("arn:aws:iam::").removesuffix(":root")
        found[account] = one["Condition"]["ArnEquals"]["aws:PrincipalArn"]
    return found


def test_the_role_for_peers_trusts_named_roles_of_named_accounts(template: Mapping[str, Any]) -> None:
    assert trust(template) == {
        account: [f"arn:aws:iam::{account}:role/{stack}-{which}" for which in ("pull", "admin")]
        for account, stack in (("111111111111", "Fenceline-us-east-1"), ("222222222222", "Theirs-us-west-2"))
    }


def test_each_peer_takes_the_role_under_its_own_name(template: Mapping[str, Any]) -> None:
    """By that name the service knows which topics it may have; the other name is of older versions."""
    document = named(template, "AWS::IAM::Role", "ForPeersRole")["AssumeRolePolicyDocument"]
    assert [one["Condition"]["StringEquals"] for one in document["Statement"]] == [
        {"sts:RoleSessionName": [region, PEER_SESSION]} for region in ("us-east-1", "us-west-2")
    ]


def test_a_peer_may_get_topics_segments_and_health_and_no_other_route(template: Mapping[str, Any]) -> None:
    allowed = named(template, "AWS::IAM::Policy", "ForPeersRole")["PolicyDocument"]["Statement"]
    assert {one["Action"] for one in allowed} == {"execute-api:Invoke"}
    patterns = {one["Effect"]: [arn.partition("$default/")[2] for arn in one["Resource"]] for one in allowed}
    prefixes = {arn.partition("$default/")[0] for one in allowed for arn in one["Resource"]}
    assert len(prefixes) == 1
    assert "*" not in prefixes.pop()

    def may(request: str) -> bool:
        is_denied = any(is_like(request, pattern) for pattern in patterns["Deny"])
        return not is_denied and any(is_like(request, pattern) for pattern in patterns["Allow"])

    values = {"topic": "orders", "partition": "0"}
    requests = {
        f"{method}{re.sub('{([^}]*)}', lambda found: values.get(found[1], 'segments'), route.path)}"
        for route in routes.ROUTES
        for method in route.methods
    }
    assert {request for request in requests if may(request)} == {
        "GET/v1/health",
        "GET/v1/topics/orders",
        "GET/v1/topics/orders/partitions/0/segments",
    }


def test_the_notifier_reads_topics_and_sends_to_queues(template: Mapping[str, Any]) -> None:
    allowed = [*statements(template, "notifier")]
    assert actions(template, "notifier") == {
        "s3:GetObject",
        "s3:ListBucket",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:SendMessage",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    [reads] = [one for one in allowed if one["Action"] == "s3:GetObject"]
    assert reads["Resource"].endswith("/topic/*")
    [sends] = [one for one in allowed if one["Action"] == "sqs:SendMessage"]
    own, *peers = sends["Resource"]
    assert own["Fn::GetAtt"][0].startswith("QueuesPull")
    assert peers == [
        "arn:aws:sqs:us-east-1:111111111111:Fenceline-us-east-1-pull",
        "arn:aws:sqs:us-west-2:222222222222:Theirs-us-west-2-pull",
    ]


def test_the_replicator_appends_and_asks_the_peers_alone(template: Mapping[str, Any]) -> None:
    allowed = [*statements(template, "replicator")]
    [creates] = [one for one in allowed if one["Action"] == "s3:PutObject"]
    assert [arn.rpartition(".Arn>")[2] for arn in creates["Resource"]] == ["/log/*", "/topic/*"]
    assert "s3:DeleteObject" not in actions(template, "replicator")
    deletes = [one["Condition"] for one in allowed if one["Action"] == "dynamodb:DeleteItem"]
    assert [one["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] for one in deletes] == [
        ["acknowledged/*"],
        ["unowned/*"],
    ]
    queues = [one["Resource"]["Fn::GetAtt"][0][:10] for one in allowed if one["Action"] == "sqs:SendMessage"]
    # The second is for runs of the schedule that could not be started.
    assert sorted(queues) == ["QueuesPull", "SchedulesD"]


def test_only_functions_that_call_peers_assume_their_roles_and_read_their_addresses(
    template: Mapping[str, Any],
) -> None:
    for name in ("admin", "replicator"):
        resources = {json.dumps(one["Action"]): one["Resource"] for one in statements(template, name)}
        assert resources['"sts:AssumeRole"'] == ["arn:aws:iam::111111111111:role/Fenceline-us-east-1-peer", OTHER.role]
        parameters = "arn:aws:ssm:us-east-1:111111111111:parameter/fenceline/Fenceline-us-east-1"
        assert resources['"ssm:GetParameter"'] == [f"{parameters}/url", f"{parameters}/bucket"]
    for name in {*FUNCTIONS, *WITH_PEERS} - {"admin", "replicator"}:
        assert not actions(template, name) & {"sts:AssumeRole", "ssm:GetParameter"}


def test_no_role_may_do_any_action_to_any_resource(template: Mapping[str, Any]) -> None:
    for one in of_type(template, "AWS::IAM::Policy").values():
        for statement in one["Properties"]["PolicyDocument"]["Statement"]:
            allowed = statement["Action"]
            assert not any("*" in action for action in ([allowed] if isinstance(allowed, str) else allowed))
            assert statement["Resource"] != "*"


def test_the_names_of_roles_and_queues_fit_for_the_longest_deployment(
    stacks: ModuleType, make: Callable[..., Any]
) -> None:
    long = resolved(stacks.template_of(make(region="ap-northeast-1", name="N" * 40, **OPTIONS)))
    names = [one["Properties"].get("RoleName", "") for one in of_type(long, "AWS::IAM::Role").values()]
    assert max(map(len, names)) <= 64
    assert len(named(long, "AWS::SQS::Queue", "QueuesPull")["QueueName"]) <= 80


# Alarms


def test_there_is_an_alarm_for_each_thing_that_stops_or_delays_a_link(template: Mapping[str, Any]) -> None:
    alarms = {
        name.removeprefix("Observability")[:-8]: one["Properties"]
        for name, one in of_type(template, "AWS::CloudWatch::Alarm").items()
    }
    for kind, metric, threshold in (
        ("ReplicationGap", metric_names.REPLICATION_GAPS, 1),
        ("ReplicationOtherHistory", metric_names.OTHER_HISTORIES, 1),
        ("ReplicationLag", metric_names.REPLICATION_LAG_MS, 300_000),
        ("ReplicationDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
    ):
        assert (alarms[kind]["MetricName"], alarms[kind]["Threshold"], alarms[kind]["Statistic"]) == (
            metric,
            threshold,
            "Maximum",
        )
    assert (alarms["ReplicationUnread"]["MetricName"], alarms["ReplicationUnread"]["Threshold"]) == (
        "ApproximateAgeOfOldestMessage",
        replication.TRIES * named(template, "AWS::SQS::Queue", "QueuesPull")["VisibilityTimeout"],
    )
    assert alarms["ReplicationUnread"]["Dimensions"][0]["Value"]["Fn::GetAtt"][0].startswith("QueuesPull")
    unsent = alarms["ReplicationUnsent"]
    assert (unsent["MetricName"], unsent["Statistic"], unsent["Threshold"]) == (metric_names.UNSENT, "Sum", 1)
    # A call that fails once is no alarm; one that fails for ever is, also where segments are rare.
    assert (unsent["DatapointsToAlarm"], unsent["EvaluationPeriods"], unsent["Period"]) == (3, 12, 300)
    assert {"NotifierErrors", "ReplicatorErrors", "NotifierThrottles", "ReplicatorThrottles"} <= set(alarms)


def test_the_cost_of_a_quiet_region_counts_every_alarm_and_metric(
    template: Mapping[str, Any], alone: Mapping[str, Any]
) -> None:
    few, many = (len(of_type(one, "AWS::CloudWatch::Alarm")) for one in (alone, template))
    assert (few, many) == (prices.ALARMS, prices.ALARMS + prices.PEER_ALARMS)
    of_peers = {*metric_names.OF_REPLICATION.values(), *metric_names.OF_NEWS.values()} - {metric_names.CORRUPT_LOG}
    assert len(of_peers) == prices.PEER_METRICS


def test_the_schedule_runs_each_minute(template: Mapping[str, Any]) -> None:
    schedule = named(template, "AWS::Scheduler::Schedule", "SchedulesReplicate")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["Target"]["Arn"]["Fn::GetAtt"][0].startswith("ReplicatorFunction")


# The rules of others


WITH_ONE_PEER = {"peers": {"us-west-2": OTHER}, "tracing": True}
IN_A_KNOWN_ACCOUNT = {**OPTIONS, "account": "111111111111"}


@pytest.mark.parametrize(
    "deployments",
    [[OPTIONS], pytest.param([WITH_ONE_PEER, IN_A_KNOWN_ACCOUNT], marks=pytest.mark.prove)],
    ids=["all peers", "others"],
)
def test_aws_solutions_and_cfn_lint_find_nothing(
    lint: Callable[..., None], deployments: Sequence[Mapping[str, Any]]
) -> None:
    lint(deployments)


def test_a_wrong_peer_ends_the_synthesis_with_one_line(stacks: ModuleType) -> None:
    context = {"regions": "us-east-1", "peers": '{"us-east-1": {}}'}
    env = {"CDK_CONTEXT_JSON": json.dumps(context), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    env["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "1"
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    printed = [line for line in done.stderr.splitlines() if line.startswith("fenceline: ")]
    assert (done.returncode, printed) == (
        1,
        ["fenceline: -c peers names us-east-1, which is deployed here itself; leave it out"],
    )
    assert "Traceback" not in done.stderr
