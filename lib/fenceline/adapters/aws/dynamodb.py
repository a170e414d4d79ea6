"""A DynamoDB table as the item store.

Rule: a write is sent once, and its answer is reported as it is. Every 5xx leaves open whether the write was carried
out. One change is one conditional request, several are one transaction. Every read is strongly consistent, but several
items of one read need not be of one moment.

Not here: the failures that change nothing (``client``), and the form of items (``log``, ``access``, ``subscriptions``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from botocore.exceptions import ClientError

from fenceline import limits
from fenceline.adapters.aws.client import (
    ClientOptions,
    Failure,
    answered,
    check_client,
    fact_of,
    make_client,
    pause,
    repeated,
    unavailable,
)
from fenceline.format.item_size import check_sizes as _check_sizes
from fenceline.ports import (
    Change,
    Check,
    Delete,
    Item,
    ItemKey,
    ItemTooLarge,
    ItemValue,
    Put,
    StoreFact,
    Unavailable,
    VersionMoved,
)

# Attributes of an item. Stored: never rename.
PARTITION, SORT, VERSION, VALUE = "pk", "sk", "version", "value"

READY_MS = 60_000  # for a new table to become active
_SCHEMA = {(PARTITION, "HASH"), (SORT, "RANGE")}


def dynamodb_client(**options: Unpack[ClientOptions]) -> Any:
    """Return a client for ``DynamoItemStore``.

    Raises:
        Unavailable: As ``make_client``.
    """
    return make_client("dynamodb", options)


class DynamoItemStore:
    """An ``ItemStore`` in ``table``. Threads and processes may share it.

    Args:
        client: One of ``dynamodb_client``, or another that doesn't repeat requests; made if left out.
    """

    def __init__(self, table: str, *, client: Any = None) -> None:
        self._client = client or dynamodb_client()
        check_client(self._client)
        self._table = table

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        if len(keys) > limits.TRANSACTION_ITEMS_MAX:
            raise ValueError(f"a get takes up to {limits.TRANSACTION_ITEMS_MAX} keys: count={len(keys)}")
        wanted = [_key(key) for key in dict.fromkeys(keys)]
        try:
            if len(wanted) == 1:  # the cheaper request
                answer = repeated(self._client.get_item, TableName=self._table, Key=wanted[0], ConsistentRead=True)
                rows = [answer["Item"]] if "Item" in answer else []
            else:
                rows = self._get_several(wanted)
        except Failure as error:
            raise unavailable(error, self._place()) from error
        return {item.key: item for item in map(_item, rows)}

    def write(self, changes: Sequence[Change]) -> None:
        if not 1 <= len(changes) <= limits.TRANSACTION_ITEMS_MAX:
            raise ValueError(f"a write takes 1 to {limits.TRANSACTION_ITEMS_MAX} changes: count={len(changes)}")
        if len({change.key for change in changes}) < len(changes):
            raise ValueError("a write takes each key once")
        _check_sizes(changes)
        try:
            self._send(changes)
        except Failure as error:
            raise self._write_fact(error, changes) from error

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        if start_after > prefix and not start_after.startswith(prefix):
            return []  # all keys with the prefix come before ``start_after``
        condition, values = f"{PARTITION} = :partition", {":partition": {"S": partition}}
        if prefix:
            condition += f" AND begins_with({SORT}, :prefix)"
            values[":prefix"] = {"S": prefix}
        where = {"ExclusiveStartKey": _key(ItemKey(partition, start_after))} if start_after > prefix else {}
        found: list[Item] = []
        while len(found) < limit:
            try:
                page = repeated(
                    self._client.query,
                    TableName=self._table,
                    ConsistentRead=True,
                    KeyConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    Limit=limit - len(found),
                    **where,
                )
            except Failure as error:
                raise unavailable(error, self._place(partition)) from error
            found += map(_item, page["Items"])
            if "LastEvaluatedKey" not in page:  # a megabyte at most in one answer
                break
            where = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return found

    def check(self) -> None:
        """Check that the table exists and is one of fenceline.

        Raises:
            Unavailable: It does not, or is not. The message says what to do.
        """
        table = self._describe()
        keys = {(part["AttributeName"], part["KeyType"]) for part in table["KeySchema"]}
        types = {
            part["AttributeType"] for part in table["AttributeDefinitions"] if part["AttributeName"] in ("pk", "sk")
        }
        if keys != _SCHEMA or types != {"S"}:
            raise Unavailable(f"the table belongs to another program; name another table: {self._place()}")
        if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
            raise Unavailable(
                f"the table is not ready; wait, then try again: {self._place()} status={table['TableStatus']}"
            )

    def create_table(self) -> None:
        """Create the table, if there is none, and return when it can be used. It is billed by the request.

        Raises:
            Unavailable: It could not be created. The message says what to do.
        """
        try:
            self._client.create_table(
                TableName=self._table,
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in sorted(_SCHEMA)],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in sorted(_SCHEMA)],
                BillingMode="PAY_PER_REQUEST",
            )
        except Failure as error:
            if answered(error)[1] != "ResourceInUseException":
                raise unavailable(error, self._place()) from error
        deadline = time.monotonic() + READY_MS / 1000
        while self._describe()["TableStatus"] == "CREATING" and time.monotonic() < deadline:
            pause(10)
        self.check()

    def close(self) -> None:
        self._client.close()

    def _describe(self) -> Any:
        try:
            return repeated(self._client.describe_table, TableName=self._table)["Table"]
        except Failure as error:
            raise unavailable(error, self._place()) from error

    def _get_several(self, keys: Sequence[Mapping[str, Any]]) -> list[Any]:
        rows: list[Any] = []
        left: Any = {self._table: {"Keys": keys, "ConsistentRead": True}} if keys else {}
        failures = 0
        while left:
            answer = repeated(self._client.batch_get_item, RequestItems=left)
            came = answer["Responses"].get(self._table, [])
            rows += came
            left = answer.get("UnprocessedKeys")
            if left and not came:  # throttled, not just too large for one answer
                if failures == _UNPROCESSED_MAX:
                    raise _throttled(answer)
                failures += 1
                pause(failures)
        return rows

    def _send(self, changes: Sequence[Change]) -> None:
        if len(changes) > 1 or isinstance(changes[0], Check):
            self._client.transact_write_items(TransactItems=[_transacted(self._table, change) for change in changes])
        elif isinstance(changes[0], Put):
            self._client.put_item(**_request(self._table, changes[0]))
        else:
            self._client.delete_item(**_request(self._table, changes[0]))

    def _write_fact(self, error: Exception, changes: Sequence[Change]) -> StoreFact:
        _, code = answered(error)
        if code == "ConditionalCheckFailedException":
            return VersionMoved(changes[0].key)
        if isinstance(error, ClientError) and code == "TransactionCanceledException":
            reasons = error.response.get("CancellationReasons", ())
            for change, reason in zip(changes, reasons, strict=False):
                if reason.get("Code") == "ConditionalCheckFailed":
                    return VersionMoved(change.key)
            if any(_is_of_size(reason.get("Code"), reason.get("Message")) for reason in reasons):
                return ItemTooLarge(f"the item has grown too large for the table: {self._place()}")
            # Another transaction is under way on one of the items (`TransactionConflict`), or there are too many
            # requests. Nothing was written, and no condition is known to have failed. So this is not `VersionMoved`,
            # because a caller would answer that with a refusal that may never have been true.
        if _is_of_size(code, str(error)):
            return ItemTooLarge(f"the item has grown too large for the table: {self._place()}")
        return fact_of(error, self._place())

    def _place(self, partition: str = "") -> str:
        return f"table={self._table} pk={partition}" if partition else f"table={self._table}"


_UNPROCESSED_MAX = 6


def _is_of_size(code: str | None, message: str | None) -> bool:
    # Items are measured before they are sent. If a store counts more bytes, its answer counts.
    return code in ("ValidationException", "ValidationError") and "size" in (message or "").lower()


def _throttled(answer: Mapping[str, Any]) -> Exception:
    """Return the failure of a read all of whose keys stayed unprocessed, again and again."""
    error = {"Code": "ThrottlingException", "Message": "no key was processed"}
    failure: Exception = ClientError({"Error": error, "ResponseMetadata": answer["ResponseMetadata"]}, "BatchGetItem")
    return failure


def _transacted(table: str, change: Change) -> dict[str, Any]:
    name = {Put: "Put", Delete: "Delete", Check: "ConditionCheck"}[type(change)]
    return {name: _request(table, change)}


def _request(table: str, change: Change) -> dict[str, Any]:
    request: dict[str, Any] = {"TableName": table}
    if isinstance(change, Put):
        version = {"N": str(change.version)}
        request["Item"] = {**_key(change.key), VERSION: version, VALUE: _encoded(change.value)}
    else:
        request["Key"] = _key(change.key)
    if change.expected is None:
        request["ConditionExpression"] = f"attribute_not_exists({PARTITION})"
    else:
        request["ConditionExpression"] = f"{VERSION} = :expected"
        request["ExpressionAttributeValues"] = {":expected": {"N": str(change.expected)}}
    return request


def _key(key: ItemKey) -> dict[str, Any]:
    return {PARTITION: {"S": key.partition}, SORT: {"S": key.sort}}


def _item(row: Any) -> Item:
    key = ItemKey(row[PARTITION]["S"], row[SORT]["S"])
    value = {name: _decoded(member) for name, member in row[VALUE]["M"].items()}
    return Item(key, int(row[VERSION]["N"]), value)


def _encoded(value: ItemValue) -> dict[str, Any]:
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}  # exact up to 38 digits
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, Mapping):
        return {"M": {name: _encoded(member) for name, member in value.items()}}
    if isinstance(value, Sequence):
        return {"L": [_encoded(element) for element in value]}
    raise TypeError(f"an item cannot hold a value of this type: type={type(value).__name__}")


def _decoded(tagged: Mapping[str, Any]) -> ItemValue:
    [(kind, value)] = tagged.items()
    if kind == "NULL":
        return None
    if kind == "N":
        return int(value)
    if kind == "M":
        return {name: _decoded(member) for name, member in value.items()}
    if kind == "L":
        return [_decoded(element) for element in value]
    decoded: ItemValue = value
    return decoded
