"""A server of each version on one directory, loaded side by side, each killed once: what they leave is whole.

Rule: each request goes to either server. One that was not answered is sent again, perhaps to the other version, where
a repeat is safe. What was acknowledged must be in the log once, where the answer said, and what was refused nowhere.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from fenceline_cli.dev_server.process import ServerProcess
from tests.versions.trees import python

SHARED, HELD = 2, 2  # partitions that all write to, and the number of the one that claimants fence each other from
WRITERS = 2  # of each kind


class Refused(Exception):
    """The service refused a request for good; the first argument is the problem."""


class Load:
    """The servers, and what their clients sent and learned.

    Attributes:
        outcomes: What became of each value: its partition and offset, or why it is in no log, or ``unknown``.
        order: The values of each idempotent producer, as it sent them.
    """

    def __init__(self, servers: list[ServerProcess]) -> None:
        self.servers = servers
        self.outcomes: dict[str, Any] = {}
        self.order: dict[str, list[str]] = {}
        self.answers: Counter[str] = Counter()
        self.over = threading.Event()
        self.http = httpx.Client(timeout=30)

    def ask(self, method: str, path: str, value: Any = None, *, is_repeated: bool = True) -> Any:
        """Return the answer of either server to a request that is sent until it has one.

        Raises:
            Refused: The request was refused; or nothing is known of it, and it must not be sent again.
        """
        while True:
            server = random.randrange(len(self.servers))
            try:
                answer = self.http.request(method, self.servers[server].url + path, json=value)
            except httpx.TransportError:
                problem: dict[str, Any] = {"code": "NO_ANSWER", "next_step": "check"}
            else:
                if answer.is_success:
                    self.answers[f"answered by {('old', 'new')[server]}"] += 1
                    return answer.json() if answer.content else None
                problem = answer.json()
            self.answers[problem["code"]] += 1
            if problem["next_step"] in ("fix", "stop") or not is_repeated:
                raise Refused(problem)
            time.sleep(0.05)

    def append(self, partition: int, value: str, *, is_repeated: bool = True, **others: Any) -> dict[str, Any]:
        """Append one record, and note what became of it."""
        body = {"records": [{"value": value}], **others}
        try:
            path = f"/v1/topics/t/partitions/{partition}/records"
            answer: dict[str, Any] = self.ask("POST", path, body, is_repeated=is_repeated)
        except Refused as refused:
            [problem] = refused.args
            self.outcomes[value] = "unknown" if problem["next_step"] == "check" else problem["code"]
            raise
        self.outcomes[value] = (partition, answer["base_offset"])
        return answer


def write_plainly(load: Load, name: str) -> None:
    """Append each value once, whatever becomes of it."""
    for number in _while(load):
        try:
            load.append(number % SHARED, f"{name}-{number}", is_repeated=False)
        except Refused as refused:
            if refused.args[0]["next_step"] not in ("retry", "check"):
                raise


def write_idempotently(load: Load, name: str) -> None:
    """Append as a producer with an id: each value until it is acknowledged."""
    pair, sent = load.ask("POST", "/v1/producer-ids", {}), load.order.setdefault(name, [])
    for number in _while(load):
        sent.append(f"{name}-{number}")
        load.append(1, sent[-1], producer={**pair, "sequence": number})


def write_in_transactions(load: Load, name: str) -> None:
    """Append to all shared partitions in transactions, of which each third is aborted."""
    pair = load.ask("POST", "/v1/producer-ids", {"transactional_id": name})
    for number in _while(load):
        values = [f"{name}-{number}-{partition}" for partition in range(SHARED)]
        for partition, value in enumerate(values):
            load.append(partition, value, transactional_id=name, producer={**pair, "sequence": 0})
        result = "commit" if number % 3 else "abort"
        pair = load.ask("POST", f"/v1/transactions/{name}/end", {**pair, "result": result})
        if result == "abort":
            load.outcomes.update(dict.fromkeys(values, "aborted"))


def write_exclusively(load: Load, name: str) -> None:
    """Claim a partition from its present holder, and append there until fenced."""
    claim = {"access_mode": "ExclusiveWithFencing", "partitions": [HELD], "lease_ms": 30_000}
    for number in _while(load):
        try:
            producer = load.ask("POST", "/v1/topics/t/producers", claim)["producer"]
            named = {"session_id": producer["session_id"], "topic_epoch": producer["topic_epochs"][f"{HELD}"]}
            for record in _while(load):
                load.append(HELD, f"{name}-{number}-{record}", session=named, is_repeated=False)
        except Refused as refused:
            if refused.args[0]["code"] not in ("PRODUCER_FENCED", "CONTENDED", "OUTCOME_UNKNOWN", "NO_ANSWER"):
                raise


def _while(load: Load) -> Iterator[int]:
    number = 0
    while not load.over.is_set():
        yield number
        number += 1
        time.sleep(random.random() / 100)


CLIENTS: dict[str, Callable[[Load, str], None]] = {
    "plain": write_plainly,
    "idempotent": write_idempotently,
    "transactional": write_in_transactions,
    "exclusive": write_exclusively,
}


def compare(old: Path, new: Path, seconds: float) -> list[str]:
    """Load a server of each version for so long; return a line for each promise that they broke."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="fenceline-")))
        servers = [ServerProcess(directory, env={"PYTHONPATH": str(lib)}) for lib in (old, new)]
        for server in servers:
            stack.enter_context(server)
        load = Load(servers)
        load.ask("POST", "/v1/topics", {"name": "t", "partitions": HELD + 1})
        with ThreadPoolExecutor(WRITERS * len(CLIENTS)) as pool:
            clients = [pool.submit(act, load, f"{kind}{n}") for kind, act in CLIENTS.items() for n in range(WRITERS)]
            for server in servers:
                load.over.wait(seconds / 3)
                server.kill()
                server.__exit__(None, None, None)
                server.__enter__()
            load.over.wait(seconds / 3)
            load.over.set()
        found = [f"a client: {client.exception()!r}" for client in clients if client.exception()]
        found += _broken(load)
        for name, lib in (("old", old), ("new", new)):
            command, variables = python(lib, "-m", "fenceline_cli.main", "verify", "--data", str(directory), "--json")
            ended = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)
            partitions = json.loads(ended.stdout)
            if ended.returncode or any(one["problem"] or one["findings"] for one in partitions):
                found.append(f"fenceline verify, {name} version: {ended.stdout}")
        load.http.close()
    print(f"servers: {len(load.outcomes)} records sent; {dict(load.answers)}", flush=True)
    return found


def _broken(load: Load) -> Iterator[str]:
    """Yield what each server answers that is not what the clients learned."""
    for server, name in zip(load.servers, ("old", "new"), strict=True):
        read = partial(_read, load.http, server.url)
        seen = {partition: list(read(partition, "read_committed")) for partition in range(HELD + 1)}
        places = [(record["value"], (partition, record["offset"])) for partition in seen for record in seen[partition]]
        for value, count in Counter(value for value, _ in places).items():
            if count > 1 or load.outcomes.get(value) not in ("unknown", dict(places)[value]):
                yield f"{name}: {value} is there {count} times, at {dict(places)[value]}: {load.outcomes.get(value)}"
        appended = {value for value, outcome in load.outcomes.items() if isinstance(outcome, tuple)}
        for value in appended - dict(places).keys():
            yield f"{name}: {value} is not there: {load.outcomes[value]}"
        for producer, sent in load.order.items():
            if [value for value, _ in places if value.startswith(f"{producer}-")] != sent:
                yield f"{name}: the records of {producer} are in another order, or not all there"
        holders: dict[int, set[str]] = {}
        for record in seen[HELD]:
            holders.setdefault(record["topic_epoch"], set()).add(record["value"].rpartition("-")[0])
        if list(holders) != sorted(holders) or any(len(names) > 1 for names in holders.values()):
            yield f"{name}: two claimants wrote under one epoch, or an epoch came back: {holders}"


def _read(http: httpx.Client, url: str, partition: int, isolation: str) -> Iterator[dict[str, Any]]:
    position, end = 0, 1
    while position < end:
        query = f"offset={position}&isolation={isolation}&max_records=10000"
        page = http.get(f"{url}/v1/topics/t/partitions/{partition}/records?{query}").json()
        yield from page["records"]
        position, end = page["position"], page["last_stable_offset"]
