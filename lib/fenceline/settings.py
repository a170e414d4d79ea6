"""The settings of a deployment: infrastructure writes them, wiring reads them.

Rule: the name of each setting of a server is here, and nowhere else.

Not here: what a setting does; the settings of clients and commands, which are arguments and options.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from fenceline import limits

_PREFIX = "FENCELINE_"
_OBJECTS = re.compile(r"s3://([a-zA-Z0-9][a-zA-Z0-9.\-_]*)(?:/(.*))?")
_ITEMS = re.compile(r"dynamodb://([a-zA-Z0-9.\-_]+)")
_NOT_YET = "${"  # begins a placeholder: infrastructure uses one for a name that does not exist yet
_PARAMETER = "ssm:"
PEER_SESSION = "fenceline"  # with which an older peer takes the role; a newer one takes it under its region's name
_AS_ROLE = re.compile(r"arn:[a-z0-9-]+:sts::[0-9]*:assumed-role/(?P<role>[^/]+)/(?P<session>[^/]+)")
_REGION = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_AT_PARAMETER = re.compile(r"ssm:/[A-Za-z0-9.\-_/]+")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Another region that this one works with.

    Args:
        name: Its name, which it gives itself, too.
        url: Where its service is: an address, or ``ssm:`` and the name of a parameter of AWS. The peer publishes its
            address in that parameter, in the region that has its name.
        role: The role that this region takes to ask it, and "" if it needs no signature. Requests are signed for the
            region of AWS that has the peer's name.
        queue: The URL of its queue ``pull``, to which this region reports news; "" if it has none.
        buckets: Where its segments may be fetched, beside its service: buckets of S3 by name, or addresses with which
            the URLs begin. A peer with a parameter publishes its bucket in another one.

    Raises:
        ValueError: The name, the URL or a bucket makes no sense. The message says what to do.
    """

    name: str
    url: str
    role: str = ""
    queue: str = ""
    buckets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _REGION.fullmatch(self.name):
            raise ValueError(f"a region's name must be 1 to 63 of the characters a-z 0-9 -, not {self.name!r}")
        if not self.url:
            raise ValueError(f"the peer {self.name} has no URL; write {self.name}=http://HOST:PORT")
        if _ADDRESS.fullmatch(self.url):
            _check_address(f"the peer {self.name}", self.url)
        elif _NOT_YET not in self.url and not _AT_PARAMETER.fullmatch(self.url):
            raise ValueError(
                f"the URL of the peer {self.name} must begin with http:// or https://, name a host, and have no user,"
                f" query, fragment or space, not {self.url!r}"
            )
        for bucket in self.buckets:
            if _ADDRESS.fullmatch(bucket):
                _check_address(f"a bucket of the peer {self.name}", bucket)
            elif _NOT_YET not in bucket and not BUCKET_NAME.fullmatch(bucket):
                raise ValueError(
                    f"a bucket of the peer {self.name} must be a bucket's name, or begin with http:// or https:// and"
                    f" name a host, not {bucket!r}"
                )

    @property
    def bucket_parameter(self) -> str:
        """The name of the parameter in which the peer publishes its bucket; "" where ``url`` is the address."""
        return f"{self.parameter.rpartition('/')[0]}/bucket" if self.parameter else ""

    @property
    def parameter(self) -> str:
        """The name of the parameter in which the peer publishes its address; "" where ``url`` is the address."""
        return self.url.removeprefix(_PARAMETER) if self.url.startswith(_PARAMETER) else ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one region's functions, or of one local server.

    Args:
        data_dir: The directory of the embedded stores, or "" if ``objects`` and ``items`` are given.
        region: The region's name, as topics and segments show it.
        item_age_ms: How old a look at topic and head may be (I4, I7); 0 looks at each append.
        objects: "" or s3://BUCKET[/PREFIX].
        items: "" or dynamodb://TABLE.
        service: The stack's name, which its metrics and log lines carry.
        log_level: DEBUG, INFO, WARNING or ERROR.
        tracing: Whether requests are traced.
        function: The name of this function.
        poll_slots: How many polls the function holds at once, all of its processes together. 0 is for a single process,
            which holds as many as it has threads for.
        aws_sdk: The library that makes the stores' clients: "boto3", or "botocore", which starts sooner.
        peers: The other regions that topics may name, and from which they are replicated.
        queue: The URL of this region's own queue ``pull``; "" if it has none.

    Raises:
        ValueError: The settings do not name one pair of stores, or the peers make no sense. The message says what to
            do.
    """

    data_dir: str = ""
    region: str = "local"
    item_age_ms: int = limits.ITEM_AGE_MS_MAX
    objects: str = ""
    items: str = ""
    service: str = "fenceline"
    log_level: str = "INFO"
    tracing: bool = False
    function: str = ""
    poll_slots: int = 0
    aws_sdk: Literal["boto3", "botocore"] = "boto3"
    peers: tuple[PeerSettings, ...] = ()
    queue: str = ""

    def __post_init__(self) -> None:
        if bool(self.objects) != bool(self.items):
            missing = "items" if self.objects else "objects"
            raise ValueError(f"objects and items belong together; name {missing}, too")
        if bool(self.data_dir) == bool(self.objects):
            raise ValueError("the settings must name either a data directory, or objects and items")
        if self.aws_sdk not in ("boto3", "botocore"):
            raise ValueError(f"aws_sdk must be boto3 or botocore, not {self.aws_sdk}")
        if self.objects and _NOT_YET not in self.objects + self.items:
            _ = self.bucket_and_prefix, self.table
        _check_peers(self.region, [peer.name for peer in self.peers])

    def asking(self, principal: str) -> Collection[str] | None:
        """Return the peers, one of which sends a request as this principal: it has the role that peers are given.

        An older peer's session does not name its region, so the caller may be any of them. Return ``None`` for all
        other callers.
        """
        found = _AS_ROLE.fullmatch(principal)
        if found is None or found["role"] != f"{self.service}-peer":
            return None
        names = [peer.name for peer in self.peers]
        return names if found["session"] == PEER_SESSION else [name for name in names if name == found["session"]]

    @property
    def is_embedded(self) -> bool:
        return not self.objects

    @property
    def bucket_and_prefix(self) -> tuple[str, str]:
        return bucket_and_prefix(self.objects)

    @property
    def table(self) -> str:
        found = _ITEMS.fullmatch(self.items)
        if found is None:
            raise ValueError(f"items must be dynamodb://TABLE, not {self.items}")
        return found[1]

    def to_env(self) -> dict[str, str]:
        """Return every setting as an environment variable, with "" for no value."""
        fields = {**dataclasses.asdict(self), "peers": _peers_text(self.peers)}
        return {_variable(name): str(value) for name, value in fields.items()}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Settings:
        """Return the settings that ``to_env`` wrote; a missing one has its default.

        Raises:
            ValueError: ``item_age_ms`` or ``poll_slots`` is no number, the stores are not named, or the peers make no
                sense.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        given = {name: environment[_variable(name)] for name in names if _variable(name) in environment}
        peers = _peers_in(given.pop("peers", ""))
        item_age_ms = int(given.pop("item_age_ms", limits.ITEM_AGE_MS_MAX))
        poll_slots = int(given.pop("poll_slots", 0))
        tracing = given.pop("tracing", str(False)) == str(True)
        aws_sdk = cast(Literal["boto3", "botocore"], given.pop("aws_sdk", "boto3"))
        return cls(
            **given, item_age_ms=item_age_ms, poll_slots=poll_slots, tracing=tracing, aws_sdk=aws_sdk, peers=peers
        )


def bucket_and_prefix(objects: str) -> tuple[str, str]:
    """Return the bucket, and the prefix or "", that s3://BUCKET[/PREFIX] names.

    Raises:
        ValueError: It names none. The message says what to do.
    """
    found = _OBJECTS.fullmatch(objects)
    if found is None:
        raise ValueError(f"objects must be s3://BUCKET or s3://BUCKET/PREFIX, not {objects}")
    return found[1], found[2] or ""


def _check_address(of: str, address: str) -> None:
    if _NOT_YET in address:
        return
    try:
        parts = urlsplit(address)
    except ValueError as error:  # such as half a bracket
        raise ValueError(f"the URL of {of} must name a host: {address!r}") from error
    if not parts.hostname:
        raise ValueError(f"the URL of {of} must name a host: {address!r}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"the port of {of} must be a number up to 65535: {address!r}") from None


def _check_peers(region: str, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if name == region:
            raise ValueError(f"a region is no peer of its own; leave {name} out, or name this region otherwise")
        if name in names[:at]:
            raise ValueError(f"the peer {name} is named twice; name it once")
    if len(names) >= limits.REGIONS_MAX:
        raise ValueError(f"a region has at most {limits.REGIONS_MAX - 1} peers, not {len(names)}")


def _peers_text(peers: Sequence[PeerSettings]) -> str:
    found = {
        peer.name: {
            "url": peer.url,
            "role": peer.role,
            "queue": peer.queue,
            **({"buckets": peer.buckets} if peer.buckets else {}),
        }
        for peer in peers
    }
    return json.dumps(found, separators=(",", ":")) if found else ""


def _peers_in(text: str) -> tuple[PeerSettings, ...]:
    """Return the peers that ``_peers_text`` wrote: ``{NAME: {"url", "role", "queue", "buckets"}}``.

    An empty text has none. Each member but ``url`` may be left out.
    """
    try:
        found: dict[str, dict[str, Any]] = json.loads(text) if text else {}
        return tuple(_peer_in(name, members) for name, members in found.items())
    except (TypeError, AttributeError, json.JSONDecodeError) as error:
        what = "a name to url, role, queue and a list of buckets, for each peer"
        raise ValueError(f"{_variable('peers')} must be JSON: {what}") from error


def _peer_in(name: str, members: dict[str, Any]) -> PeerSettings:
    buckets = members.pop("buckets", [])
    if not isinstance(buckets, list):
        raise TypeError
    return PeerSettings(name, **members, buckets=tuple(buckets))


def _variable(field: str) -> str:
    return _PREFIX + field.upper()
