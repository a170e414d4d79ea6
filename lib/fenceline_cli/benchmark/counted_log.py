"""A log on a bucket and a table whose requests are counted, for measurements."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import boto3.session
from botocore.config import Config

from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS
from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.observed import ObjectCall, ObservedObjects
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings

PARALLEL = 32
ITEM_WRITES = ("dynamodb.PutItem", "dynamodb.DeleteItem", "dynamodb.TransactWriteItems")


REQUESTS = {"create": "s3.PutObject", "get": "s3.GetObject", "list": "s3.ListObjectsV2", "delete": "s3.DeleteObject"}


class CountedLog:
    """A log that counts its calls of the object store, its requests to DynamoDB, and the items that they wrote."""

    def __init__(self, settings: Settings, *, objects_endpoint: str | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self.items_written = 0
        self.runtime = ThreadRuntime(PARALLEL)
        dynamodb = dynamodb_client()
        dynamodb.meta.events.register("before-send", self._count)
        self._bucket = S3ObjectStore(*settings.bucket_and_prefix, endpoint_url=objects_endpoint)
        self.objects = ObservedObjects(self._bucket, self._count_call)
        self.items = DynamoItemStore(settings.table, client=dynamodb)
        self._region = settings.region
        self.log = self.opened()

    def opened(self) -> Log:
        """Return a log on the same stores with an empty memory."""
        return Log(self.objects, self.items, self.runtime, region=self._region, create_ms=CONNECT_MS + ANSWER_MS)

    def clear(self) -> None:
        self.calls.clear()
        self.items_written = 0

    def _count_call(self, call: ObjectCall) -> Any:
        """Count a call by the name of S3's request: once, however often the request is sent."""
        self.calls[REQUESTS[call.method]] += 1
        return call()

    def _count(self, event_name: str, request: Any, **_: Any) -> None:
        call = event_name.removeprefix("before-send.")
        self.calls[call] += 1
        if call in ITEM_WRITES:
            self.items_written += len(json.loads(request.body).get("TransactItems", "1"))

    def close(self) -> None:
        self.log.close()
        self._bucket.close()
        self.items.close()


def plain_s3(endpoint: str | None) -> Any:
    """Return a client as ``boto3.client("s3")`` does, but one that sends each request once."""
    once = Config(retries={"total_max_attempts": 1})
    return boto3.session.Session().client("s3", endpoint_url=endpoint, config=once)
