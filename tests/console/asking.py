"""Requests of the contract for the console's tests, which leave open what the client would end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """Return the JSON that the service answers; raises if it refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}/v1{path}", data, {"content-type": "application/json"}, method=method)
    with urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def append(url: str, topic: str, partition: int, values: Sequence[str], **more: Any) -> Any:
    records = [{"key": f"k{n}", "value": value} for n, value in enumerate(values)]
    return ask(url, "POST", f"/topics/{topic}/partitions/{partition}/records", {"records": records, **more})


def begin(url: str, transactional_id: str, *places: tuple[str, int], timeout_ms: int = 900_000) -> dict[str, int]:
    """Open a transaction that stays open, with three records in each place, and return its pair."""
    wanted = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    pair: dict[str, int] = ask(url, "POST", "/producer-ids", wanted)
    for topic, partition in places:
        append(
            url,
            topic,
            partition,
            ["a", "b", "c"],
            transactional_id=transactional_id,
            producer={**pair, "sequence": 0},
        )
    return pair


def end(url: str, transactional_id: str, pair: dict[str, int], result: str) -> None:
    ask(url, "POST", f"/transactions/{quote(transactional_id, safe='')}/end", {**pair, "result": result})


def commit_once(url: str, app_id: str, version: int, note: str | None = None) -> None:
    once = {"app_id": app_id, "version": version, "note": note}
    ask(url, "POST", "/transactions/end", {"transactions": [], "result": "commit", "once": once})
