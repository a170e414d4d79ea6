"""The settings of a deployment, ``-c name=value``, parsed at the door.

Rule: an unknown name, or a value that is not one, ends the synthesis with one line. Nothing is guessed. After this
module there are only types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from infra import peers
from infra.peers import OtherDeployment

Target = Literal["lambda", "here"]

_FURTHER = {"unauthenticated", "spark_release", "spark_environment"}  # names that are no field of ``Deployment``

# The toolkit's own context; everything else must be ours.
_TOOLKIT = re.compile(r"aws:|@aws-cdk/|cli-|availability-zones:|hosted-zone:|ami:|vpc-provider:|ssm:|cdk-")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")
_ROLE = re.compile(r"arn:[a-z0-9-]+:iam::[0-9]{12}:role/.+")
_TOPIC = re.compile(r"arn:[a-z0-9-]+:sns:([a-z0-9-]+):[0-9]{12}:[A-Za-z0-9_.-]+")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-]+(:\d+)?")
_RELEASE = re.compile(r"emr-[a-z0-9][a-z0-9.\-]{0,62}")
_TOO_OLD = re.compile(r"emr-[5-7]\.")  # Spark 3.5 and older
_LOG_DAYS = (1, 7, 14, 30, 90, 180, 365, 731)


class BadContext(Exception):
    """A setting that can't be deployed. The message says what to write instead, in one line."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The parts of an application of EMR Serverless.

    Args:
        release: The label of a release of EMR whose Spark is 4.0 or newer.
        environment: A packed virtual environment: a file of this machine, or an object's ``s3://`` URL.
    """

    release: str
    environment: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """The settings, which are the same for every region.

    Args:
        name: The beginning of the stacks' names.
        regions: One stack each, which are each other's peers.
        peers: By region those of other deployments, as ``-c peers`` describes them: peers of each of ``regions``.
        auth: With ``iam`` each request is signed (SigV4) by a caller that may invoke the API. ``none`` lets every
            caller in.
        cors_origins: Web origins that may call the API; none by default.
        throttle_rate, throttle_burst: Requests in a second, and at once, beyond which the gateway answers 429.
        poll_concurrency: How many processes each function that holds polls may have at once (reserved concurrency);
            0 reserves nothing.
        deletion_protection: The table refuses to be deleted until this is turned off.
        keeps_data: Bucket and table outlive the stack.
        restore_role: The ARN of the one role that may put objects unconditionally, while a backup is brought back.
        alarm_topics: By region the ARN of the SNS topic that gets the region's alarms.
        log_days: How long the functions' and the API's logs are kept.
        log_level: The level of the functions' own lines: DEBUG, INFO, WARNING or ERROR.
        tracing: X-Ray traces requests.
        spark: The place for jobs of Spark; ``None`` makes none.
        target: The machine that the functions are built for: Lambda's, or this one, for an emulator that runs them
            here.
    """

    name: str = "Fenceline"
    regions: Sequence[str] = field(default_factory=tuple)
    peers: Mapping[str, OtherDeployment] = field(default_factory=dict)
    auth: Literal["iam", "none"] = "iam"
    cors_origins: Sequence[str] = ()
    throttle_rate: int = 5_000
    throttle_burst: int = 2_000
    poll_concurrency: int = 0
    deletion_protection: bool = True
    keeps_data: bool = True
    restore_role: str = ""
    alarm_topics: Mapping[str, str] = field(default_factory=dict)
    log_days: int = 30
    log_level: str = "INFO"
    tracing: bool = False
    spark: SparkSettings | None = None
    target: Target = "lambda"

    @property
    def has_peers(self) -> bool:
        """Whether the stacks have peers: each other, or regions of other deployments."""
        return len(self.regions) + len(self.peers) > 1


def parse(context: Mapping[str, Any], *, default_region: str) -> Deployment:
    """Return the deployment that the context asks for.

    Args:
        context: Everything that ``-c`` and cdk.json say.
        default_region: The region that the CLI is set to; "" if none.

    Raises:
        BadContext: It asks for something that does not exist.
    """
    given = {name: value for name, value in context.items() if not _TOOLKIT.match(name)}
    known = {one.name for one in fields(Deployment)} | _FURTHER
    for name in sorted(given.keys() - known):
        raise BadContext(f"there is no -c {name}; there are: {', '.join(sorted(known))}")
    regions = _regions(given, default_region)
    return Deployment(
        name=_matching(given, "name", _NAME, "Fenceline", "letters, digits and hyphens, at most 40, a letter first"),
        regions=regions,
        peers=_peers(given, regions),
        auth=_auth(given),
        cors_origins=_origins(given),
        throttle_rate=_number(given, "throttle_rate", 5_000),
        throttle_burst=_number(given, "throttle_burst", 2_000),
        poll_concurrency=_number(given, "poll_concurrency", 0, low=0),
        deletion_protection=_flag(given, "deletion_protection", True),
        keeps_data=_flag(given, "keeps_data", True),
        restore_role=_matching(given, "restore_role", _ROLE, "", "a role's ARN"),
        alarm_topics=_alarm_topics(given, regions),
        log_days=_one_of(given, "log_days", _LOG_DAYS, 30),
        log_level=_one_of(given, "log_level", ("DEBUG", "INFO", "WARNING", "ERROR"), "INFO"),
        tracing=_flag(given, "tracing", False),
        spark=_spark(given),
        target=_one_of(given, "target", ("lambda", "here"), "lambda"),
    )


def _regions(given: Mapping[str, Any], default_region: str) -> tuple[str, ...]:
    asked = _words(given, "regions") or ((default_region,) if default_region else ())
    if not asked:
        raise BadContext("no region: name one or several with -c regions=us-east-1,eu-west-1, or set AWS_REGION")
    for region in asked:
        if region not in peers.known_regions():
            raise BadContext(f"there is no region {region}; write them as AWS does: -c regions=us-east-1,eu-west-1")
        if asked.count(region) > 1:
            raise BadContext(f"the region {region} is named twice; name it once")
    return asked


def _peers(given: Mapping[str, Any], regions: Sequence[str]) -> dict[str, OtherDeployment]:
    try:
        return peers.parse(given.get("peers", ""), regions=regions)
    except peers.BadPeers as error:
        raise BadContext(str(error)) from error


def _alarm_topics(given: Mapping[str, Any], regions: Sequence[str]) -> dict[str, str]:
    """Return the topics by region: CloudWatch sends no alarm to a topic of another region."""
    topics: dict[str, str] = {}
    for arn in _words(given, "alarm_topics"):
        match = _TOPIC.fullmatch(arn)
        if match is None:
            raise BadContext(f"-c alarm_topics takes ARNs of SNS topics, not {arn!r}")
        if match[1] not in regions:
            raise BadContext(f"no stack goes to the region of {arn}; alarms need a topic in their own region")
        if match[1] in topics:
            raise BadContext(f"-c alarm_topics names two topics in {match[1]}; name one for each region")
        topics[match[1]] = arn
    return topics


def _auth(given: Mapping[str, Any]) -> Literal["iam", "none"]:
    auth: Literal["iam", "none"] = _one_of(given, "auth", ("iam", "none"), "iam")
    is_accepted = _flag(given, "unauthenticated", False)
    if auth == "none" and not is_accepted:
        raise BadContext(
            "-c auth=none lets the whole internet read and write; if that is meant, add -c unauthenticated=true"
        )
    if auth == "iam" and is_accepted:
        raise BadContext("-c unauthenticated=true goes with -c auth=none, and only with it")
    return auth


def _spark(given: Mapping[str, Any]) -> SparkSettings | None:
    if not _flag(given, "spark", False):
        for name in ("spark_release", "spark_environment"):
            if name in given:
                raise BadContext(f"-c {name} goes with -c spark=true, and only with it")
        return None
    release = _matching(given, "spark_release", _RELEASE, "", "the label of a release of EMR, such as emr-spark-8.0.0")
    if not release or _TOO_OLD.match(release):
        raise BadContext(f"-c spark=true needs -c spark_release, a release of EMR with Spark 4.0 or newer: {release!r}")
    environment = str(given.get("spark_environment", ""))
    # An asset keeps the last suffix of its file alone, and Spark unpacks no .gz.
    is_packed = (
        environment.endswith((".tar.gz", ".tgz"))
        if environment.startswith("s3://")
        else (environment.endswith(".tgz") and Path(environment).is_file())
    )
    if not is_packed:
        raise BadContext(
            "-c spark=true needs -c spark_environment, a packed Python: a file that ends in .tgz, or an s3:// URL of a "
            f".tgz or .tar.gz; not {environment!r}"
        )
    return SparkSettings(release, environment)


def _origins(given: Mapping[str, Any]) -> tuple[str, ...]:
    origins = _words(given, "cors_origins")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise BadContext(f"-c cors_origins takes origins such as https://example.com, not {origin}")
    return origins


def _words(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in str(given.get(name, "")).split(",") if word.strip())


def _matching(given: Mapping[str, Any], name: str, pattern: re.Pattern[str], default: str, wanted: str) -> str:
    value = str(given.get(name, default))
    if value != default and not pattern.fullmatch(value):
        raise BadContext(f"-c {name} is {wanted}, not {value!r}")
    return value


def _number(given: Mapping[str, Any], name: str, default: int, *, low: int = 1) -> int:
    value = str(given.get(name, default))
    if not (value.isascii() and value.isdigit() and len(value) <= 7 and low <= int(value) <= 1_000_000):
        raise BadContext(f"-c {name} is a number from {low} to 1000000, not {value!r}")
    return int(value)


def _flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = str(given.get(name, default)).lower()
    if value not in ("true", "false"):
        raise BadContext(f"-c {name} is true or false, not {value!r}")
    return value == "true"


def _one_of(given: Mapping[str, Any], name: str, choices: Sequence[Any], default: Any) -> Any:
    value = str(given.get(name, default))
    for choice in choices:
        if str(choice) == value:
            return choice
    raise BadContext(f"-c {name} is one of {', '.join(map(str, choices))}, not {value!r}")
