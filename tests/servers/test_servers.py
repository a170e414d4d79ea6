"""The real servers start or are reported missing, and end with the process that started them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import install
from tests.servers.install import CannotInstall
from tests.servers.run import Servers, kafka, ministack
from tests.support.patience import wait_until


@pytest.mark.parametrize(
    ("server", "tool"),
    [
        (install.versitygw, "go"),
        (install.dynamodb_local, "java"),
        (install.kafka, "java"),
        (lambda: install.spark_sql_kafka("4.3.0")[1], "java"),
    ],
    ids=["versitygw", "dynamodb", "kafka", "connector"],
)
def test_a_missing_tool_of_a_server_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Callable[[], Path], tool: str
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("FENCELINE_TEST_SERVERS", str(tmp_path))
    with pytest.raises(CannotInstall, match=f"^{tool} is not installed$"):
        server()
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_server_that_could_not_be_had_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries = []
    monkeypatch.setenv("FENCELINE_TEST_SERVERS", str(tmp_path))
    monkeypatch.setattr(install, "_need", lambda tool: tries.append(tool))
    monkeypatch.setattr(install, "PAUSES_S", ())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess("go", 1, "", "no\n"))
    with Servers() as servers:
        for _ in range(3):
            with pytest.raises(CannotInstall, match=r"^go failed: no$"):
                servers.need("versitygw")
    assert tries == ["go"]


def test_a_connector_that_its_registry_lacks_is_replaced_by_the_newest_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def run(*command: str, **_: object) -> None:
        asked.append(next(Path(part).read_text() for part in command if part.endswith("pom.xml")))
        if "<version>9.9.9</version>" in asked[-1]:
            raise CannotInstall("mvn failed: there is none")

    monkeypatch.setenv("FENCELINE_TEST_SERVERS", str(tmp_path))
    monkeypatch.setattr(install, "_need", lambda tool: None)
    monkeypatch.setattr(install, "_need_java", lambda: None)
    monkeypatch.setattr(install, "_run", run)
    assert not install.has_spark_sql_kafka("9.9.9")
    place = tmp_path / f"spark-sql-kafka-{install.SPARK_SQL_KAFKA}"
    for _ in range(2):  # the second one finds it
        assert install.spark_sql_kafka("9.9.9") == (install.SPARK_SQL_KAFKA, place)
    assert len(asked) == 2


@pytest.mark.slow
def test_a_broker_of_kafka_takes_connections_until_its_block_ends() -> None:
    try:
        install.kafka()
    except CannotInstall as error:
        pytest.skip(str(error))
    with kafka() as address:
        assert is_listening(f"kafka://{address}")
    wait_until(lambda: not is_listening(f"kafka://{address}"))


def is_listening(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((parts.hostname, parts.port)) == 0


@pytest.mark.slow
def test_a_server_ends_with_its_block() -> None:
    with ministack() as url:
        assert is_listening(url)
    wait_until(lambda: not is_listening(url))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_ends_with_a_process_that_is_killed() -> None:
    lines = ["import time", "from tests.servers.run import ministack", "with ministack() as url:"]
    code = "\n".join([*lines, " print(url, flush=True)", " time.sleep(60)"])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert is_listening(url)
        process.kill()
    wait_until(lambda: not is_listening(url))
    for path in install.cache_directory().glob(f"run.{process.pid}.*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
