"""The peers of a region, which are other regions that replicate its topics, and the names of their resources.

Rule: every name that one region must know of another follows from the other's stack, so that regions which are deployed
together need no settings about each other, in whatever order they come. Only an API's address and a bucket's name are
AWS's choice, so the region itself publishes them in parameters, which its peers' functions read. For a region of
another deployment or another account, ``-c peers`` says both.

Not here: what the resources are (``replication``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import aws_cdk as cdk
import botocore.session

from fenceline import limits
from fenceline.settings import BUCKET_NAME, PeerSettings

PULL = "pull"  # the queue of partitions to look at, and the role of the function that reads it
NEWS = "news"  # the queue of new objects, and the role of the function that reads it
ADMIN = "admin"  # the role of the admin function, in a region with peers
PEER = "peer"  # the role that the peers' functions take

_URL = re.compile(r"https://[A-Za-z0-9.\-]+(:\d+)?(/[A-Za-z0-9.\-_/]*)?")
_QUEUE = re.compile(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([0-9]{12})/([A-Za-z][A-Za-z0-9-]*)-pull")
_ROLE = re.compile(r"arn:[a-z0-9-]+:iam::([0-9]{12}):role/([A-Za-z][A-Za-z0-9-]*)-peer")
_FORM = '{"eu-west-1": {"url": "https://…", "queue": "https://sqs.…-pull", "role": "arn:…-peer", "bucket": "…"}}'


class BadPeers(Exception):
    """A ``-c peers`` that can't be deployed. The message says what to write instead, in one line."""


@dataclass(frozen=True, slots=True)
class OtherDeployment:
    """A region of another deployment, as ``-c peers`` describes it.

    Args:
        url: Its API.
        queue: The URL of its queue ``pull``.
        role: The ARN of its role for peers.
        account: Its account.
        stack: The name of its stack, with which the names of its queue and its roles begin.
        bucket: The name of its bucket, from which its segments are fetched; "" if it was left out.
    """

    url: str
    queue: str
    role: str
    account: str
    stack: str
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class PeerReference:
    """A peer, as one stack refers to it.

    Args:
        settings: The functions' settings of it.
        account: Its account.
        queue: The ARN of its queue ``pull``.
        role: The ARN of the role to take there.
        notifier: The ARN of the role of its notifier, which sends to our queue.
        askers: The ARNs of the roles of its functions that take our role: the replicator, and admin, which reports
            whether this region is connected.
        parameters: The ARNs of the parameters with its address and its bucket; none if the settings say them.
    """

    settings: PeerSettings
    account: str
    queue: str
    role: str
    notifier: str
    askers: Sequence[str]
    parameters: Sequence[str]


@cache
def known_regions() -> frozenset[str]:
    """Return the names of all regions that have Lambda."""
    session = botocore.session.get_session()
    partitions = session.get_available_partitions()
    return frozenset(region for one in partitions for region in session.get_available_regions("lambda", one))


def stack_name(deployment: str, region: str) -> str:
    """Return the name of a region's stack."""
    return f"{deployment}-{region}"


def parameter_name(stack: str) -> str:
    """Return the name of the parameter with the address of a stack's API."""
    return f"/fenceline/{stack}/url"


def bucket_parameter_name(stack: str) -> str:
    """Return the name of the parameter with a stack's bucket, which the settings of its peers derive from the other."""
    return f"/fenceline/{stack}/bucket"


def parse(given: object, *, regions: Collection[str]) -> dict[str, OtherDeployment]:
    """Return the regions that ``-c peers`` describes, by name.

    Args:
        given: A JSON object, as a text or parsed; "" for none.
        regions: Those that this deployment has itself.

    Raises:
        BadPeers: It describes no peers.
    """
    try:
        found = json.loads(given or "{}") if isinstance(given, str) else given
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadPeers(f"-c peers takes JSON such as {_FORM}")
    if len(found) + len(regions) > limits.REGIONS_MAX:
        raise BadPeers(f"a deployment has at most {limits.REGIONS_MAX} regions, those of -c peers included; name fewer")
    for name in found:
        if name not in known_regions():
            raise BadPeers(f"-c peers names {name}, but there is no such region; write it as AWS does")
        if name in regions:
            raise BadPeers(f"-c peers names {name}, which is deployed here itself; leave it out")
    return {name: _parsed(name, members) for name, members in found.items()}


def _parsed(name: str, members: Any) -> OtherDeployment:
    if not isinstance(members, dict) or members.keys() | {"bucket"} != {"url", "queue", "role", "bucket"}:
        raise BadPeers(f"-c peers needs url, queue and role for {name}, and nothing else but bucket: {_FORM}")
    url, queue, role, bucket = (str(members.get(member, "")) for member in ("url", "queue", "role", "bucket"))
    if not _URL.fullmatch(url):
        raise BadPeers(f"-c peers has no https URL for {name}: url={url!r}")
    its_queue, its_role = _QUEUE.fullmatch(queue), _ROLE.fullmatch(role)
    if its_queue is None or its_queue[1] != name:
        raise BadPeers(f"-c peers needs for {name} the URL of a queue there, whose name ends with -pull: {queue!r}")
    if its_role is None:
        raise BadPeers(f"-c peers needs for {name} the ARN of a role whose name ends with -peer: {role!r}")
    if its_role.groups() != its_queue.groups()[1:]:
        raise BadPeers(f"-c peers has for {name} a queue and a role of different stacks: {queue!r}, {role!r}")
    if "bucket" in members and not BUCKET_NAME.fullmatch(bucket):
        raise BadPeers(f"-c peers needs for {name} the name of a bucket: {bucket!r}")
    try:
        PeerSettings(name, url)
    except ValueError as error:
        raise BadPeers(f"-c peers: {error}") from error
    return OtherDeployment(url.rstrip("/"), queue, role, account=its_role[1], stack=its_role[2], bucket=bucket)


def peers_of(
    stack: cdk.Stack, region: str, *, deployment: str, regions: Sequence[str], others: Mapping[str, OtherDeployment]
) -> tuple[PeerReference, ...]:
    """Return the peers of one region, as its stack refers to them.

    Args:
        deployment: The name with which the stacks of ``regions`` begin.
        regions: Those that are deployed together, ``region`` among them.
        others: Those of other deployments.
    """
    together = tuple(_deployed_too(stack, one, stack_name(deployment, one)) for one in regions if one != region)
    return together + tuple(_deployed_elsewhere(stack, name, other) for name, other in others.items())


def _deployed_too(stack: cdk.Stack, region: str, its_stack: str) -> PeerReference:
    """Return a peer of the same deployment, which has the same account."""
    settings = PeerSettings(
        name=region,
        url=f"ssm:{parameter_name(its_stack)}",
        role=role_arn(stack, stack.account, its_stack, PEER),
        queue=f"https://sqs.{region}.{stack.url_suffix}/{stack.account}/{its_stack}-{PULL}",
    )
    prefix = f"arn:{stack.partition}:ssm:{region}:{stack.account}:parameter"
    parameters = [f"{prefix}{name}" for name in (settings.parameter, settings.bucket_parameter)]
    return _peer(stack, settings, stack.account, its_stack, parameters)


def _deployed_elsewhere(stack: cdk.Stack, region: str, other: OtherDeployment) -> PeerReference:
    buckets = (other.bucket,) if other.bucket else ()
    settings = PeerSettings(name=region, url=other.url, role=other.role, queue=other.queue, buckets=buckets)
    return _peer(stack, settings, other.account, other.stack, ())


def _peer(
    stack: cdk.Stack, settings: PeerSettings, account: str, its_stack: str, parameters: Sequence[str]
) -> PeerReference:
    return PeerReference(
        settings,
        account=account,
        queue=f"arn:{stack.partition}:sqs:{settings.name}:{account}:{its_stack}-{PULL}",
        role=settings.role,
        notifier=role_arn(stack, account, its_stack, NEWS),
        askers=[role_arn(stack, account, its_stack, which) for which in (PULL, ADMIN)],
        parameters=parameters,
    )


def role_arn(stack: cdk.Stack, account: str, its_stack: str, which: str) -> str:
    """Return the ARN of one of the roles whose names peers know."""
    return f"arn:{stack.partition}:iam::{account}:role/{its_stack}-{which}"
