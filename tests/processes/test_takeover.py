"""Promise 3 with real processes: leaders that are killed, or stopped and continued, at random moments."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from fenceline.client import Client
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import wait_until

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
PER_ROUND = 20  # writes acknowledged before the leader is ended


def acknowledged(cluster: Any) -> int:
    return sum(write.outcome == "acknowledged" for write in list(cluster.writes))


@pytest.mark.parametrize(
    ("workers", "takeovers"),
    [
        (1, 6),
        (2, 4),
        pytest.param(1, 20, marks=pytest.mark.prove),
        pytest.param(2, 10, marks=pytest.mark.prove),
    ],
)
def test_nothing_acknowledged_is_lost_and_nothing_late_lands_in_takeovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, takeovers: int
) -> None:
    """Three nodes, four clients; each round ends the leader by kill -9 or SIGSTOP.

    A stopped leader is continued once another node leads. Then every acknowledgement and every refusal is compared with
    the log. So is each record's epoch with the node that led in it, and the log with every replica.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    import replicated_kv as kv

    chance = random.Random(workers)
    fates = ["kill", "stop"] * (takeovers // 2)
    chance.shuffle(fates)
    with ServerProcess(tmp_path, workers=workers) as server, Client(server.url) as client:
        client.create_topic("kv")
        cluster = kv.Cluster(server.url, "kv", ["a", "b", "c"])
        try:
            for fate in fates:
                cluster.leader()
                before = acknowledged(cluster)
                wait_until(lambda before=before: acknowledged(cluster) > before + PER_ROUND)
                time.sleep(chance.uniform(0.0, 0.5))
                cluster.take_over(fate)
            time.sleep(0.2)
            states = cluster.finish()
        finally:
            cluster.close()
        log = kv.log_of(client, "kv")
    outcomes = kv.compare(cluster.writes, cluster.reigns, states, log)
    assert len(cluster.reigns) > len(fates)
    assert outcomes["acknowledged"] > PER_ROUND * len(fates)
    late = [write for write in cluster.writes if write.value == kv.LATE]
    assert {write.outcome for write in late} == {"refused"}
    assert len(late) == fates.count("stop") * kv.LATE_WRITES


def test_clients_hear_of_their_last_writes_before_the_nodes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    import replicated_kv as kv

    sent: list[Any] = []

    def send(_: Any, node: str, key: str, value: str) -> Any:
        sent.append(kv.Write(key, value, node))
        return sent[-1]

    monkeypatch.setattr(kv.Cluster, "_send", send)
    cluster = kv.Cluster("http://unused", "kv", [])
    cluster._hear("a", None, {"event": "leads", "epoch": 0, "next_offset": 0})
    wait_until(lambda: len(sent) == kv.CLIENTS)
    cluster.close()
    for client in cluster._clients:
        client.join(0.2)
    assert all(client.is_alive() for client in cluster._clients)
    for write in sent:
        write.is_answered.set()
    for client in cluster._clients:
        client.join(60)
    assert not any(client.is_alive() for client in cluster._clients)
    assert len(sent) == kv.CLIENTS
