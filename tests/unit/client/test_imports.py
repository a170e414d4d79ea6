"""What the client loads of the package: the contract's shapes, and nothing of the log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import fenceline.client

pytestmark = pytest.mark.xdist_group("imports")  # one fresh process is asked

CLIENT = Path(fenceline.client.__file__).parent

# Outside its own package.
OF_A_CLIENT = {
    "fenceline",
    "fenceline.answers",
    "fenceline.backoff",
    "fenceline.errors",
    "fenceline.format",
    "fenceline.format.partitioner",
    "fenceline.limits",
    "fenceline.model",
    "fenceline.model.access",
    "fenceline.model.group",
    "fenceline.model.kinds",
    "fenceline.model.record",
    "fenceline.model.results",
    "fenceline.model.subscription",
    "fenceline.model.topic",
    "fenceline.model.topic_config",
    "fenceline.model.transaction",
    "fenceline.runtime",
}
OF_A_CODEC = {"fenceline.format.batch", "fenceline.format.compression", "fenceline.format.crc32c"}
OF_OTHERS = {"aiokafka", "boto3", "botocore", "cramjam", "google_crc32c", "sqlite3", "typer"}

# One process, which says after each step what it has loaded by then.
STEPS = """
import json, sys

def say(step):
    names = [name for name in sys.modules if name.partition(".")[0] in {"fenceline", *OTHERS}]
    print(json.dumps([step, names]))

from fenceline import Client
say("import")

import httpx

BOUNDS = {"log_start_offset": 0, "next_offset": 0, "last_stable_offset": 0}
APPENDED = {"base_offset": 0, "next_offset": 1, "count": 1, "duplicate": False, "topic_epoch": 0,
            "expected_offset_checked": False, "timestamp": 0}
TOPIC = {"name": "t", "topic_id": "0" * 32, "partitions": 1, "config": {}, "regions": ["local"], "created_at": 0}

def answer(request):
    match request.method, request.url.path.split("/")[3:]:
        case "POST", [] | [_, "end"]:
            return httpx.Response(200, json={"producer_id": 1, "producer_epoch": 0})
        case "POST", [*_, "records"]:
            return httpx.Response(200, json=APPENDED)
        case "GET", ["t", "partitions", "0", "records"]:
            sent = {"position": 0, **BOUNDS}
            return httpx.Response(200, headers={"fenceline-" + k.replace("_", "-"): str(v) for k, v in sent.items()})
        case "GET", [*_, "records"]:
            return httpx.Response(200, json={"records": [], "encoding": "base64", "position": 0, **BOUNDS})
        case "PUT", [*_, "subscriptions", "s"]:
            return httpx.Response(200, json={"name": "s", "topic": "t", "replicate_subscription_state": False})
        case "GET", ["t"]:
            return httpx.Response(200, json=TOPIC)
    raise AssertionError(request.url)

client = Client("http://service", http=httpx.MockTransport(answer))
assert client.topic("t").partitions == 1
say("topic")
with client.subscribe("t", "s", follow=False) as subscriber:
    assert list(subscriber) == []
say("subscriber")
with client.reader("t", start=0) as reader:
    assert list(reader) == []
say("reader")
with client.producer("t") as producer:
    producer.send(value=b"a value")
say("producer")
with client.transactional_producer("id") as producer, producer.transaction() as txn:
    txn.send("t", value=b"a value")
say("transactions")
"""


@pytest.fixture(scope="module")
def loaded() -> Mapping[str, set[str]]:
    """Modules that a fresh process has loaded after each of its steps."""
    program = f"OTHERS = {OF_OTHERS!r}\n{STEPS}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {step: set(names) for step, names in map(json.loads, ended.stdout.splitlines())}


def beside_its_own(modules: set[str]) -> set[str]:
    return {name for name in modules if not (name + ".").startswith("fenceline.client.")}


@pytest.mark.parametrize("step", ["import", "topic", "subscriber"])
def test_a_client_loads_the_contracts_shapes_and_nothing_of_the_log(loaded: Mapping[str, set[str]], step: str) -> None:
    assert beside_its_own(loaded[step]) == OF_A_CLIENT


def test_a_client_that_was_only_imported_loads_no_producer_reader_or_subscriber(
    loaded: Mapping[str, set[str]],
) -> None:
    own = {name.removeprefix("fenceline.client.") for name in loaded["import"] - beside_its_own(loaded["import"])}
    assert own == {
        "fenceline.client",
        "api",
        "calls",
        "client",
        "faults",
        "following",
        "masking",
        "problems",
        "proxy",
        "records",
        "requests",
        "requests.base",
        "requests.groups",
        "requests.log",
        "requests.poll",
        "requests.regions",
        "requests.sessions",
        "requests.subscriptions",
        "requests.transactions",
        "session",
        "signing",
        "transport",
        "types",
    }


@pytest.mark.parametrize("step", ["import", "topic", "subscriber", "reader", "producer"])
def test_only_a_transaction_loads_what_makes_one(loaded: Mapping[str, set[str]], step: str) -> None:
    assert not [name for name in loaded[step] if name.startswith("fenceline.client.transactions")]
    assert "fenceline.client.transactions.open" in loaded["transactions"]


@pytest.mark.parametrize("step", ["reader", "producer", "transactions"])
def test_the_first_use_of_batches_loads_their_format_and_nothing_of_the_log(
    loaded: Mapping[str, set[str]], step: str
) -> None:
    ours = {name for name in beside_its_own(loaded[step]) if name.partition(".")[0] == "fenceline"}
    assert ours == OF_A_CLIENT | OF_A_CODEC
    others = {name.partition(".")[0] for name in beside_its_own(loaded[step]) - ours}
    assert others == {"aiokafka", "cramjam", "google_crc32c"}
