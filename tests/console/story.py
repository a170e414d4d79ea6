"""A shop in two regions, for pictures of the console and for people who try it: ``python -m tests.console.story``.

There are orders with subscriptions that are behind, a ledger whose writers took over from each other, a group of
workers, a transaction that readers wait for, a job's lock, versions of a Spark job, and a topic with a copy in the
other region.
"""

from __future__ import annotations

import bz2
import json
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fenceline import Client, OnceMark, Record
from fenceline.errors import FencelineError
from fenceline_cli.dev_server.process import ServerProcess

ROOT = Path(__file__).parents[2]
EU, US = "eu-west-1", "us-east-1"
NAMES = ["ann", "ben", "cho", "dee", "eve", "fay", "gus", "hal", "ida", "jon"]
ITEMS = ["book", "lamp", "chair", "desk", "mug", "pen", "rug", "clock"]
REVIEWS = 578_805


def order(number: int, chance: random.Random) -> dict[str, Any]:
    """Return an order as JSON."""
    items = [
        {"sku": chance.choice(ITEMS), "qty": chance.randint(1, 4), "price": round(chance.uniform(3, 90), 2)}
        for _ in range(chance.randint(1, 3))
    ]
    total = round(sum(one["qty"] * one["price"] for one in items), 2)
    status = chance.choice(["paid", "paid", "paid", "refused", "shipped"])
    named = {"order": f"o-{number:06d}", "customer": chance.choice(NAMES)}
    return {**named, "status": status, "total": total, "items": items}


def orders(count: int, seed: int = 7) -> Iterator[Record]:
    """Yield orders as records, each with a trace."""
    chance = random.Random(seed)
    for number in range(count):
        made = order(number, chance)
        headers = [("trace", f"{chance.getrandbits(64):016x}".encode()), ("source", b"web")]
        yield Record(json.dumps(made).encode(), key=made["customer"].encode(), headers=headers)


def load(client: Client, reviews: int = REVIEWS) -> None:
    """Make the topics of the first region, and what is in them."""
    client.create_topic("orders", partitions=4, config={"retention.ms": 30 * 86_400_000})
    client.create_topic("ledger", config={"cleanup.policy": "compact"})
    client.create_topic("images")
    client.create_topic("returns", partitions=2)
    for name in ("billing", "search-index", "audit"):
        client.create_subscription("orders", name, initial_position="earliest")
    with client.producer("orders") as producer:
        producer.send_many(list(orders(12_000)))
    for name, share in (("billing", 0.9), ("search-index", 0.4), ("audit", 1.0)):
        for partition, at in client.topic_offsets("orders").items():
            client.acknowledge("orders", name, partition, cumulative=int(at.next_offset * share) - 1)
    chance = random.Random(3)
    with client.producer("images") as producer:
        for number in range(40):
            producer.send(key=f"img-{number}".encode(), value=b"\x89PNG\r\n\x1a\n" + chance.randbytes(300))
    if reviews:
        client.create_topic("reviews", partitions=8)
        lines = bz2.decompress((ROOT / "examples/data/anonreviews.csv.bz2").read_bytes()).split(b"\r\n")[1:-1]
        with client.producer("reviews") as producer:
            producer.send_many([Record(line, key=line[: line.index(b",")]) for line in lines[:reviews]])


def balances(client: Client, name: str, count: int) -> None:
    """Write balances into the ledger as a writer that takes over from the one before."""
    with client.producer("ledger", access_mode="ExclusiveWithFencing") as producer:
        for number in range(count):
            value = json.dumps({"balance": number * 10, "by": name}).encode()
            producer.send(key=f"acct-{number % 20}".encode(), value=value)


def copies(eu: Client, us: Client) -> None:
    """Make a topic with a copy in the other region, and a subscription that can move there."""
    regions = [EU, US]
    for client in (eu, us):
        client.create_topic("shop-events", partitions=4, regions=regions)
    eu.create_subscription("shop-events", "billing", initial_position="earliest", replicate_subscription_state=True)
    chance = random.Random(5)
    for client, count in ((eu, 3_000), (us, 800)):
        with client.producer("shop-events") as producer:
            for number in range(count):
                event = {"event": chance.choice(["view", "cart", "buy"]), "at": number}
                producer.send(key=f"s{number % 97}".encode(), value=json.dumps(event).encode())


def hold(client: Client, over: threading.Event) -> None:
    """Wait for the ledger, and then write to it."""
    with client.producer("ledger", access_mode="WaitForExclusive", wait_ms=600_000) as producer:
        number = 0
        while not over.wait(0.4):
            for _ in range(20):
                number += 1
                value = json.dumps({"balance": number * 10, "by": "ledger"}).encode()
                producer.send(key=f"acct-{number % 20}".encode(), value=value)


def work(client: Client, over: threading.Event) -> None:
    """Handle orders as a member of a group."""
    with client.consumer("orders", group="workers", start="earliest") as consumer:
        for _ in consumer:
            if over.wait(0.02):
                return


def transact(client: Client, over: threading.Event) -> None:
    """Keep a transaction open."""
    with (
        client.transactional_producer("loader-1", timeout_ms=600_000) as producer,
        producer.transaction() as txn,
    ):
        for record in orders(5, seed=11):
            txn.send("orders", key=record.key, value=record.value, partition=3)
        over.wait()


def lock(client: Client, over: threading.Event) -> None:
    """Keep a lock."""
    with client.lock("nightly"):
        over.wait()


CAST = {
    "ledger-1:5120": hold,
    "ledger-3:77": hold,
    "backfill@ci-12": hold,
    "worker-1:311": work,
    "worker-2:312": work,
    "loader-1:9": transact,
    "cron-2:88": lock,
}


@contextmanager
def under_way(url: str) -> Iterator[None]:
    """Keep what is only there while its process is: holders, those that wait, a group, a transaction, a lock."""
    over = threading.Event()

    def do(name: str) -> None:
        # A producer that a takeover fences, as a picture shows it, ends.
        with suppress(FencelineError), Client(url, client_name=name) as client:
            CAST[name](client, over)

    for name in CAST:
        threading.Thread(target=do, args=(name,), daemon=True).start()
        time.sleep(0.4)  # so that they queue in this order
    try:
        yield
    finally:
        over.set()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def two_regions(folder: Path, ports: Mapping[str, int] | None = None) -> Iterator[Mapping[str, str]]:
    """Yield the URLs of two regions on this machine that replicate each other."""
    ports = ports or {EU: _free(), US: _free()}
    with ExitStack() as stack:
        for region, other in ((EU, US), (US, EU)):
            options = ["--region", region, "--peers", f"{other}=http://127.0.0.1:{ports[other]}"]
            stack.enter_context(ServerProcess(folder / region, port=ports[region], options=options))
        yield {region: f"http://127.0.0.1:{port}" for region, port in ports.items()}


def tell(urls: Mapping[str, str], reviews: int = REVIEWS) -> None:
    """Load everything that stays."""
    with Client(urls[EU]) as eu, Client(urls[US]) as us:
        load(eu, reviews)
        for name, count in (("ledger-1:4711", 60), ("ledger-2:981", 60), ("ledger-1:4712", 140), ("ledger-2:990", 200)):
            with Client(urls[EU], client_name=name) as writer:
                balances(writer, name, count)
        eu.end_transactions([], "commit", once=OnceMark("hourly-totals", 7, "run-2"))
        copies(eu, us)


def main() -> int:
    """Serve the shop until Ctrl-C."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with tempfile.TemporaryDirectory() as folder, two_regions(Path(folder)) as urls:
        tell(urls)
        with under_way(urls[EU]):
            print(f"the shop is open: {urls[EU]}/console and {urls[US]}/console", flush=True)
            stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
