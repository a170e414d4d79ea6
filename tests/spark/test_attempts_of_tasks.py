"""Attempts at a task on a real cluster: one that dies after its appends, and two that both finish (I29).

The cluster has two host names of this machine. Spark never runs a copy of a task on the host of the first attempt, and
the workers of ``local-cluster`` all have one name.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyspark
import pytest

from fenceline.model.transaction import ONGOING
from fenceline_spark import java
from fenceline_testing import serving
from tests.spark.copying import ROWS, Copying
from tests.spark.driver_process import QUICK_JVM
from tests.spark.processes import Session, kill_the_sender, session
from tests.support.patience import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prove,  # six JVMs; CI loses a task's process in test_driver_crashes
    pytest.mark.skipif(sys.platform != "linux", reason="finds a driver's processes in /proc, which Linux has"),
]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[Session]]]:
    """Lend a master and two workers of one core, and the master's URL."""
    home = Path(pyspark.__file__).parent
    deploy = "org.apache.spark.deploy"
    environ = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    java.provide(environ)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"spark://127.0.0.1:{port}"

    def listens() -> bool:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(port))):
            return True
        return False

    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Session:
            command = [str(home / "bin" / "spark-class"), *arguments, "--webui-port", "0"]
            return stack.enter_context(session(command, environ, folder / f"{name}.log"))

        start("master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port)
        work = str(folder / "work")
        wait_until(listens)
        workers = [
            start(f"worker-{host}", f"{deploy}.worker.Worker", "--host", host, "-c", "1", "-m", "1g", "-d", work, url)
            for host in ("127.0.0.1", "localhost")
        ]
        yield url, workers


def test_a_task_that_dies_after_its_appends_and_one_with_two_copies_are_written_once(tmp_path: Path) -> None:
    """The first batch loses the process of a task; in the second one, both copies of that task are through.

    Until that process dies, the other core is busy. Spark copies a task once another one is done, and the copy could
    then be through before the process dies.
    """
    with serving() as lent, cluster(tmp_path) as (master, workers):
        copying = Copying(lent.client, lent.url, tmp_path)
        copying.grow()
        copying.grow()
        with copying.driver(offsets_per_trigger=sum(ROWS), master=master, conf=SPECULATION) as (driver, gate):
            busy = gate.hold("GET /v1/topics/orders/partitions/[12]/segments", when=partial(copying.is_at, 0))
            dies = gate.hold(r"POST /v1/transactions/spark\.[-\w]+\.0\.0/extend", is_answered=True)
            copies = [
                gate.hold(rf"POST /v1/transactions/spark\.[-\w]+\.0\.{attempt}/extend", when=partial(copying.is_at, 1))
                for attempt in (0, 1)
            ]
            driver.meets(busy)
            driver.meets(dies)
            kill_the_sender(dies.port, *workers)
            busy.release()
            for copy in copies:
                driver.meets(copy)
            assert copying.committed() == copying.expected(0)
            for copy in copies:
                copy.release()
            assert driver.wait() == 0, driver.output()
        name = copying.once_id
        assert f"POST /v1/producer-ids {name}.0.1 -> 200" in gate.log[: gate.log.index("POST /v1/transactions/end")]
        for attempt in (0, 1):
            assert f"POST /v1/transactions/{name}.0.{attempt}/extend -> 200" in gate.log
            assert lent.client.transaction(f"{name}.0.{attempt}").state != ONGOING
        assert gate.log.count("POST /v1/transactions/end -> 200") == 2
        assert copying.version == 1
        copying.check_whole()
