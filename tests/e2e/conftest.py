"""The services that the black-box tests run against, and the regions that the deploy test makes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from fenceline.client import Client
from fenceline_testing.service import Fenceline, in_memory, on_moto
from tests.e2e.region import REGIONS, Region, Toolkit
from tests.servers.aws import aws
from tests.servers.install import CannotInstall, need_node
from tests.servers.once import keep_one
from tests.support.patience import PATIENCE_S


class Dev:
    """A `fenceline dev` in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)

    def another_client(self) -> Client:
        return Client(self.url)

    def fetch(self, url: str) -> bytes:
        return httpx.get(url, timeout=PATIENCE_S).raise_for_status().content


class Deployed:
    """A deployed region."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.client = region.client()

    def another_client(self) -> Client:
        return self.region.client()

    def fetch(self, url: str) -> bytes:
        return self.region.fetch(url)


Service = Fenceline | Dev | Deployed

# By day in memory and deployed. The others are further servers of the same code: the contract tests hold their stores.
SERVICES = [
    "memory",
    pytest.param("moto", marks=[pytest.mark.slow, pytest.mark.prove]),
    pytest.param("dev", marks=[pytest.mark.slow, pytest.mark.prove]),
    pytest.param("deployed", marks=pytest.mark.deploy),
]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep every test of what is deployed out of `make check`."""

    def is_deployed(item: pytest.Item) -> bool:
        return item.get_closest_marker("deploy") is not None

    for item in filter(is_deployed, items):
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group("deployed"))  # one worker deploys, and once
    keep_one(config, items, is_deployed, need_node)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def memory() -> Iterator[Fenceline]:
    with in_memory() as lent:
        yield lent


@pytest.fixture(scope="module")
def moto() -> Iterator[Fenceline]:
    with on_moto() as lent:
        yield lent


@pytest.fixture(scope="session")
def dev() -> Iterator[Dev]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fenceline_cli.main", "dev", "--data", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                made = Dev(next(word for word in process.stdout.readline().split() if word.startswith("http")))
                with made.client:
                    yield made
            finally:
                process.terminate()


@pytest.fixture(scope="session")
def deployed(regions: Mapping[str, Region], credentials: None) -> Iterator[Deployed]:
    made = Deployed(regions[REGIONS[0]])
    with made.client:
        yield made


@pytest.fixture(scope="session")
def toolkit() -> Iterator[Toolkit]:
    """Lend the toolkit, and an empty AWS for it."""
    try:
        need_node()
        with aws() as lent, tempfile.TemporaryDirectory() as folder:
            yield Toolkit(lent, Path(folder))
    except CannotInstall as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(f"the deploy test was not run: {error}")


@pytest.fixture(scope="session")
def credentials(toolkit: Toolkit) -> Iterator[None]:
    """Give the clients of this process the credentials of the user that deployed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in toolkit.aws.env.items():
            if name.startswith("AWS_") and not name.startswith("AWS_ENDPOINT"):
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def regions(toolkit: Toolkit) -> Mapping[str, Region]:
    """Lend two regions, deployed."""
    toolkit.synth()
    toolkit.bootstrap()
    _, outputs = toolkit.deploy()
    made = {}
    for name in REGIONS:
        output = outputs[f"Fenceline-{name}"]
        made[name] = Region(name, output["Url"], output["Bucket"], output["Table"], toolkit.aws)
    return made
