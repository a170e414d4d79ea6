"""The console as commands serve it: beside the API of this machine, and in front of a service elsewhere."""

import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import PATIENCE_S


@contextmanager
def started(*arguments, lines=1):
    """Run a command, and lend the first lines that it prints."""
    command = [sys.executable, "-m", "fenceline_cli.main", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield [process.stdout.readline().rstrip("\n") for _ in range(lines)]
        finally:
            process.terminate()


@pytest.mark.parametrize("workers", [1, 2])
def test_dev_prints_its_own_url_first_and_then_the_consoles(tmp_path, workers):
    with started("dev", "--data", tmp_path, "--port", 0, "--workers", workers, lines=2) as [ready, console]:
        url = ready.removeprefix("fenceline is ready: ")
        assert console == f"console: {url}/console"
        assert httpx.get(f"{url}/console", timeout=PATIENCE_S).headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("workers", [1, 2])
def test_without_its_console_a_server_has_no_page(tmp_path, workers):
    with ServerProcess(tmp_path, workers=workers, options=["--no-console"]) as server:
        for _ in range(4):  # each on a connection of its own, for either worker to take
            assert httpx.get(f"{server.url}/console", timeout=PATIENCE_S).status_code == 404
        assert httpx.get(f"{server.url}/v1/health", timeout=PATIENCE_S).json()["status"] == "ok"
