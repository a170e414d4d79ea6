"""The one place that reads the environment and picks adapters.

Rule: the environment is read once, when the first request comes, and the service that was made lives as long as the
process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Unpack

from fenceline import __version__, limits
from fenceline.log.polls import OwnSlots, SharedSlots, Slots
from fenceline.ports import ItemStore, ObjectStore
from fenceline.runtime import Runtime, ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import PeerSettings, Settings
from fenceline_http.store_meter import Meter, MeteredItems, MeteredObjects

if TYPE_CHECKING:
    from fenceline.adapters.aws.client import ClientOptions
    from fenceline.adapters.aws.credentials import Sdk
    from fenceline.adapters.aws.dynamodb import DynamoItemStore
    from fenceline.adapters.aws.s3 import S3ObjectStore
    from fenceline.adapters.aws.sqs import SqsQueue
    from fenceline.adapters.peer_http import Signer
    from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
    from fenceline.regions.peer import Peer

_BATCHES_AT_ONCE = 16  # in one request for several partitions
_FETCHES_AT_ONCE = 32  # by one process, from S3
_PEER_CALLS_AT_ONCE = 8  # by one process whose own stores are on this machine

Objects: TypeAlias = "SqliteObjectStore | S3ObjectStore"
Items: TypeAlias = "SqliteItemStore | DynamoItemStore"


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that every function works with: settings, log, stores, runtime."""

    settings: Settings
    log: Log
    objects: Objects
    items: Items
    runtime: Runtime  # for the functions' own calls side by side; the log has another, so that neither waits for itself
    version: str
    meter: Meter | None = None  # counts the calls of the stores; None in some tests

    def close(self) -> None:
        self.log.close()
        self.objects.close()
        self.items.close()


@cache
def service() -> Service:
    """Return the service of this process.

    Raises:
        CannotOpen, Unavailable: The stores can't be used.
        ValueError: The environment names none.
    """
    return service_of(Settings.from_env(os.environ))


def service_of(settings: Settings) -> Service:
    """Make the service that ``settings`` describes.

    Raises:
        CannotOpen: The data directory can't be used, or no client of AWS is installed.
        Unavailable: The AWS settings make no client.
    """
    runtime = runtime_of(settings)
    objects, items = stores_of(settings, now_ms=runtime.now_ms)
    meter = Meter(runtime.monotonic_ms)
    log = log_of(settings, MeteredObjects(objects, meter), MeteredItems(items, meter), runtime)
    return Service(settings, log, objects, items, ThreadRuntime(_BATCHES_AT_ONCE), __version__, meter)


def runtime_of(settings: Settings) -> ThreadRuntime:
    """Return the runtime of a log, in which only a store elsewhere is asked several things at once."""
    return ThreadRuntime(1 if settings.is_embedded else _FETCHES_AT_ONCE)


def stores_of(settings: Settings, *, now_ms: Callable[[], int]) -> tuple[Objects, Items]:
    """Open the stores that ``settings`` names; those on AWS are not asked anything yet.

    Raises:
        CannotOpen, Unavailable: As ``service_of``.
    """
    if settings.is_embedded:
        from fenceline.adapters.sqlite.directory import open_directory  # only here: no function on Lambda needs it

        return open_directory(settings.data_dir, now_ms=now_ms)
    try:
        # Only here: a third of a second, and an extra.
        from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
        from fenceline.adapters.aws.s3 import S3ObjectStore

        dynamodb = dynamodb_client(sdk=settings.aws_sdk)
        objects = S3ObjectStore(*settings.bucket_and_prefix, sdk=settings.aws_sdk)
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return objects, DynamoItemStore(settings.table, client=dynamodb)


def bucket_of(bucket: str, prefix: str, **options: Unpack[ClientOptions]) -> S3ObjectStore:
    """Open a bucket that holds no log, such as an archive's; it is not asked anything yet.

    Raises:
        CannotOpen, Unavailable: As ``service_of``.
    """
    try:
        from fenceline.adapters.aws.s3 import S3ObjectStore  # Only here: an extra.

        return S3ObjectStore(bucket, prefix, **options)
    except ModuleNotFoundError as error:
        raise _missing(error) from error


def _missing(error: ModuleNotFoundError) -> Exception:
    from fenceline.adapters.sqlite.directory import CannotOpen

    return CannotOpen(f'S3 and DynamoDB need {error.name}: pip install "fenceline-log[aws]"')


def log_of(settings: Settings, objects: ObjectStore, items: ItemStore, runtime: Runtime) -> Log:
    """Return the log on opened stores."""
    create_ms = 0
    if not settings.is_embedded:
        from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS

        create_ms = CONNECT_MS + ANSWER_MS
    poll_slots: Slots
    if settings.poll_slots:
        poll_slots = SharedSlots(items, runtime, settings.function, settings.poll_slots)
    else:
        poll_slots = OwnSlots(runtime, limits.POLLS_OF_A_PROCESS_MAX)
    return Log(
        objects,
        items,
        runtime,
        region=settings.region,
        item_age_ms=settings.item_age_ms,
        create_ms=create_ms,
        poll_slots=poll_slots,
        peers=_LazyPeers(settings),
        # A peer is elsewhere even where the stores are not, so its answers are waited for side by side.
        peer_calls=ThreadRuntime(_PEER_CALLS_AT_ONCE) if settings.is_embedded and settings.peers else None,
    )


def _signer(peer: PeerSettings, region: str) -> Signer | None:
    """Return the signer of requests to a peer; ``None`` if no role is to be taken."""
    if not peer.role:
        return None
    from fenceline.adapters.aws.peer_signing import RoleSigner  # Only here: an extra, which local servers may lack.

    return RoleSigner(peer.role, peer.name, session=region)


def _peer_of(peer: PeerSettings, region: str, aws_sdk: Sdk) -> Peer:
    from fenceline.adapters.peer_http import HttpPeer  # Only here: it loads a client of HTTP.

    sign = _signer(peer, region)
    if not peer.parameter:
        return HttpPeer(peer.name, peer.url, places=partial(_places, peer.buckets, peer.name, aws_sdk), sign=sign)
    from fenceline.adapters.aws.published_peer import (  # Only here: an extra.
        Address,
        Published,
        PublishedPeer,
        parameter_reader,
    )

    def connect(found: Address) -> Peer:
        buckets = (*peer.buckets, *filter(None, [found.bucket]))
        return HttpPeer(peer.name, found.url, places=partial(_places, buckets, peer.name, aws_sdk), sign=sign)

    read = parameter_reader(peer.parameter, peer.bucket_parameter, peer.name)
    return PublishedPeer(Published(peer.name, connect, read))


@cache
def _places(buckets: Sequence[str], region: str, aws_sdk: Sdk) -> Sequence[str]:
    """Return with what the URLs of a peer's segments begin; for a bucket's name, where S3 has it.

    Raises:
        Unavailable: Where S3 has it cannot be found out.
    """
    if all("://" in bucket for bucket in buckets):
        return buckets
    from fenceline.adapters.aws.s3_place import place_of  # Only here: an extra.

    return [one if "://" in one else place_of(one, region=region, sdk=aws_sdk).url for one in buckets]


class _LazyPeers(Mapping[str, "Peer"]):
    """The configured peers by name. A peer is made when it is first asked for: most functions ask none."""

    def __init__(self, settings: Settings) -> None:
        self._make = partial(_peer_of, region=settings.region, aws_sdk=settings.aws_sdk)
        self._settings = {peer.name: peer for peer in settings.peers}
        self._made: dict[str, Peer] = {}

    def __getitem__(self, name: str) -> Peer:
        found = self._made.get(name)
        if found is None:
            found = self._made.setdefault(name, self._make(self._settings[name]))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


class PullQueues(NamedTuple):
    """The queues of partitions to look at: this region's own, and by name those of its peers."""

    own: SqsQueue
    peers: Mapping[str, SqsQueue]


def queues_of(settings: Settings) -> PullQueues:
    """Return the queues that ``settings`` names. None is asked anything yet."""
    from fenceline.adapters.aws.sqs import SqsQueue  # Only here: few functions send messages.

    peers = {peer.name: SqsQueue(peer.queue, region=peer.name) for peer in settings.peers}
    return PullQueues(SqsQueue(settings.queue), peers)
