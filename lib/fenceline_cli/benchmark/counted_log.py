"""A log on a bucket and a table whose requests are counted, for measurements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import boto3.session
from botocore.config import Config

from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS, ClientOptions
from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.ports import Object, ObjectSummary
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings

PARALLEL = 32
ITEM_WRITES = ("dynamodb.PutItem", "dynamodb.DeleteItem", "dynamodb.TransactWriteItems")


class _CountedObjects(S3ObjectStore):
    """A bucket whose calls are counted by the names of S3's requests: one for each, however often it is sent."""

    def __init__(self, calls: Counter[str], bucket: str, prefix: str, **options: Unpack[ClientOptions]) -> None:
        super().__init__(bucket, prefix, **options)
        self._calls = calls

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._calls["s3.PutObject"] += 1
        super().create(key, body, metadata)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        self._calls["s3.GetObject"] += 1
        return super().get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        self._calls["s3.ListObjectsV2"] += 1
        return super().list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._calls["s3.DeleteObject"] += 1
        super().delete(key)


class CountedLog:
    """A log that counts its calls of the object store, its requests to DynamoDB, and the items that they wrote."""

    def __init__(self, settings: Settings, *, objects_endpoint: str | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self.items_written = 0
        self.runtime = ThreadRuntime(PARALLEL)
        dynamodb = dynamodb_client()
        dynamodb.meta.events.register("before-send", self._count)
        self.objects = _CountedObjects(self.calls, *settings.bucket_and_prefix, endpoint_url=objects_endpoint)
        self.items = DynamoItemStore(settings.table, client=dynamodb)
        self._region = settings.region
        self.log = self.opened()

    def opened(self) -> Log:
        """Return a log on the same stores with an empty memory."""
        return Log(self.objects, self.items, self.runtime, region=self._region, create_ms=CONNECT_MS + ANSWER_MS)

    def clear(self) -> None:
        self.calls.clear()
        self.items_written = 0

    def _count(self, event_name: str, request: Any, **_: Any) -> None:
        call = event_name.removeprefix("before-send.")
        self.calls[call] += 1
        if call in ITEM_WRITES:
            self.items_written += len(json.loads(request.body).get("TransactItems", "1"))

    def close(self) -> None:
        self.log.close()
        self.objects.close()
        self.items.close()


def plain_s3(endpoint: str | None) -> Any:
    """Return a client as ``boto3.client("s3")`` does, but one that sends each request once."""
    once = Config(retries={"total_max_attempts": 1})
    return boto3.session.Session().client("s3", endpoint_url=endpoint, config=once)
