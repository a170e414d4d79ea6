"""The real servers, started on free loopback ports, and ended.

Rule: a server ends with the block that started it. On Linux it ends also with a process that was killed in that block.
Each starts empty.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers import install

ACCESS_KEY, SECRET_KEY, REGION = "test", "test-secret", "us-east-1"
READY_S = 60
# Another process may take the port that was free a moment ago.
STARTS_MAX = 3

KAFKA_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={directory}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

# What a client of any of these servers needs beside its address.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}


class CannotStart(Exception):
    """A server did not come up. The message has the last lines it printed."""


class Servers:
    """Servers for a session of tests, each started when it is first needed, all ended together."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: set[str] = set()
        self._missing: dict[str, install.CannotInstall] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def need(self, name: str) -> None:
        """Start the server ``name``, unless it runs; its address goes to this process and those it starts.

        Raises:
            CannotInstall: It can't be had on this machine.
            CannotStart: It did not come up.
        """
        if name in self._missing:
            raise self._missing[name]
        if name not in self._running:
            start = {
                "versitygw": versitygw,
                "minio": minio,
                "dynamodb_local": dynamodb_local,
                "ministack": ministack,
            }[name]
            try:
                os.environ[variable_of(name)] = self._stack.enter_context(start())
            except install.CannotInstall as error:
                self._missing[name] = error  # asked for once: an attempt may take minutes
                raise
            self._running.add(name)


def address_of(name: str) -> str:
    """Return the URL of a server that was started here or in this process's parent."""
    return os.environ[variable_of(name)]


def variable_of(name: str) -> str:
    """Return the variable that has a server's URL."""
    return f"FENCELINE_TEST_{name.upper()}"


@contextmanager
def versitygw(directory: Path | None = None) -> Iterator[str]:
    """Lend the URL of an S3 server over a folder.

    The folder's file system needs user attributes. Most have them; some ``/tmp`` do not, so the default is beside the
    installed servers.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    program = install.versitygw()
    with lent_folder(directory) as folder:

        def command(port: int) -> Sequence[str]:
            address = f"127.0.0.1:{port}"
            return [
                str(program),
                "--port",
                address,
                "--region",
                REGION,
                "--keep-alive",
                "--quiet",
                "posix",
                str(folder),
            ]

        with running(command, {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}) as url:
            yield url


@contextmanager
def minio() -> Iterator[str]:
    """Lend the URL of a MinIO over a folder: that of the program that ``install.MINIO`` names.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    program = install.minio()
    with lent_folder(None) as folder:

        def command(port: int) -> Sequence[str]:
            return [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder)]

        with running(command, {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}) as url:
            yield url


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Lend the URL of Amazon's own DynamoDB for tests, in memory.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    libraries = install.dynamodb_local()

    def command(port: int) -> Sequence[str]:
        java = ["java", "-Xmx512m", f"-Djava.library.path={libraries}", "-cp", f"{libraries}/*"]
        main = "software.amazon.dynamodb.services.local.main.ServerRunner"
        return [*java, main, "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]

    with running(command, {}) as url:
        yield url


@contextmanager
def kafka(*, partitions: int = 2) -> Iterator[str]:
    """Lend the address of an Apache Kafka broker on its own, with its distribution's options of Java.

    Args:
        partitions: Of each topic. The first request that names a topic makes it.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    libraries = install.kafka()
    heap = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
    java = ("java", "-server", *heap, "-XX:MaxInlineLevel=15", "-cp", f"{libraries}/*")
    with lent_folder(None) as folder:

        def command(port: int) -> Sequence[str]:
            properties = folder / f"{port}.properties"
            lines = KAFKA_PROPERTIES.format(
                port=port, controller=_free_port(), directory=folder / str(port), partitions=partitions
            )
            properties.write_text(lines)
            storage = ("kafka.tools.StorageTool", "format", "-t", "ZmVuY2VsaW5lLXRlc3RzMA", "-c", str(properties))
            subprocess.run([*java, *storage], capture_output=True, check=True)
            return [*java, "kafka.Kafka", str(properties)]

        with running(command, {}, look=_connect) as url:
            yield urlsplit(url).netloc


@contextmanager
def ministack() -> Iterator[str]:
    """Lend the URL of an AWS in one process: S3 and DynamoDB among others.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    program = install.ministack()

    def env(port: int) -> Mapping[str, str]:
        return {"GATEWAY_PORT": str(port), "MINISTACK_HOST": "127.0.0.1", "BIND_HOST": "127.0.0.1"}

    with running(lambda _: [str(program)], env) as url:
        yield url


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    env: Mapping[str, str] | Callable[[int], Mapping[str, str]],
    *,
    scheme: str = "http",
    look: Callable[[str], None] | None = None,
    on_ready: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
) -> Iterator[str]:
    """Lend the URL of a server that ``command`` starts at a port.

    Args:
        look: Raises ``OSError`` until the server answers at its URL; left out, any answer by HTTP is one.
        on_ready: Called with the server's process.

    Raises:
        CannotStart: It did not come up.
    """
    with lent_folder(None) as folder:
        log = folder.parent / f"{folder.name}.log"
        try:
            for start in range(STARTS_MAX):
                port = _free_port()
                added = env(port) if callable(env) else env
                with log.open("wb") as output:
                    process = subprocess.Popen(
                        command(port),
                        cwd=folder,
                        env={**os.environ, **added},
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        preexec_fn=_end_with_parent,
                    )
                try:
                    if _is_ready(process, f"{scheme}://127.0.0.1:{port}", look or _request):
                        on_ready(process)
                        yield f"{scheme}://127.0.0.1:{port}"
                        return
                finally:
                    _end(process)
                if start == STARTS_MAX - 1:
                    raise CannotStart(f"{Path(command(port)[0]).name} did not start: {_tail(log)}")
        finally:
            log.unlink(missing_ok=True)


def _is_ready(process: subprocess.Popen[bytes], url: str, look: Callable[[str], None]) -> bool:
    """Wait until the server answers anything at all; return False if it ended instead."""
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            look(url)
            return process.poll() is None
        except OSError:
            time.sleep(0.05)
    return False


def _request(url: str) -> None:
    unchecked = ssl._create_unverified_context() if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(f"{url}/", timeout=5, context=unchecked):
            return
    except urllib.error.HTTPError as answer:
        answer.close()


def _connect(url: str) -> None:
    parts = urlsplit(url)
    socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5).close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def lent_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield chosen
        return
    parent = install.cache_directory()
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"run.{os.getpid()}.", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])[:500]
