"""Every adapter that the contract tests run against.

Rule: each is opened by name, so that another process can open the same one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.ports import ItemStore, ObjectStore
from tests.servers.install import MINIO
from tests.servers.run import REGION, address_of
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from fenceline.adapters.aws.client import ClientOptions
    from fenceline.adapters.aws.dynamodb import DynamoItemStore
    from fenceline.adapters.aws.s3 import S3ObjectStore


PATIENT: ClientOptions = {"connect_ms": PATIENCE_S * 1000, "answer_ms": PATIENCE_S * 1000}


class Closable(Protocol):
    def close(self) -> None: ...


class OpenObjects(ObjectStore, Closable, Protocol): ...


class OpenItems(ItemStore, Closable, Protocol): ...


@dataclass(frozen=True)
class Adapter:
    """One kind of store: how to open it at a place, and whether several processes may."""

    open: Callable[[str], Any]
    is_shared: bool
    server: str | None = None  # the server of ``servers.run`` that it needs
    is_folder: bool = False  # keys are paths: none both a file and a folder
    is_nightly: bool = False  # by day another server shows the same


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _name(place: str) -> str:
    """Return a name for ``place`` that no other place has, and that every process gives it."""
    return f"test-{hashlib.sha256(place.encode()).hexdigest()[:32]}"


def _options(server: str) -> ClientOptions:
    return {**PATIENT, "endpoint_url": address_of(server), "region": REGION}


# The adapters for AWS are imported where they are opened: rivals on the embedded store are new processes and need none.


def _s3(server: str) -> Callable[[str], S3ObjectStore]:
    def open_at(place: str) -> S3ObjectStore:
        from fenceline.adapters.aws.s3 import S3ObjectStore

        store = S3ObjectStore("fenceline-test", _name(place), **_options(server))
        store.create_bucket()
        return store

    return open_at


def _dynamodb(server: str) -> Callable[[str], DynamoItemStore]:
    def open_at(place: str) -> DynamoItemStore:
        from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client

        store = DynamoItemStore(_name(place), client=dynamodb_client(**_options(server)))
        store.create_table()
        return store

    return open_at


OBJECT_STORES: dict[str, Adapter] = {
    "sqlite": Adapter(lambda place: SqliteObjectStore(f"{place}/objects.sqlite3", now_ms=now_ms), is_shared=True),
    "sqlite-memory": Adapter(lambda place: SqliteObjectStore(":memory:", now_ms=now_ms), is_shared=False),
    "s3-moto": Adapter(_s3("moto"), is_shared=False, server="moto", is_nightly=True),
    "s3-ministack": Adapter(_s3("ministack"), is_shared=True, server="ministack"),
    "s3-versitygw": Adapter(_s3("versitygw"), is_shared=True, server="versitygw", is_folder=True),
}
if MINIO in os.environ:
    OBJECT_STORES["s3-minio"] = Adapter(_s3("minio"), is_shared=True, server="minio", is_folder=True)

ITEM_STORES: Mapping[str, Adapter] = {
    "sqlite": Adapter(lambda place: SqliteItemStore(f"{place}/items.sqlite3"), is_shared=True),
    "sqlite-memory": Adapter(lambda place: SqliteItemStore(":memory:"), is_shared=False),
    "dynamodb-moto": Adapter(_dynamodb("moto"), is_shared=False, server="moto", is_nightly=True),
    "dynamodb-ministack": Adapter(_dynamodb("ministack"), is_shared=True, server="ministack", is_nightly=True),
    "dynamodb-local": Adapter(_dynamodb("dynamodb_local"), is_shared=True, server="dynamodb_local"),
}
