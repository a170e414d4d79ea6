"""A server for each module that asks for one, and the commands against it, run in this process."""

import itertools
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_cli.main import app

HERE = Path(__file__).parent
NUMBERS = itertools.count()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """Keep the tests of a module that ask a server in one worker. Otherwise each worker would start the server."""
    for item in items:
        if item.path.parent == HERE and {"url", "urls"} & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("data")) as server:
        yield server.url


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def run(url):
    """Return a function that runs a command and returns its result."""

    def run(*arguments, stdin=None):
        return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env={"FENCELINE_URL": url})

    return run


@pytest.fixture
def topic(client):
    """Return a fresh topic of two partitions."""
    name = f"topic-{next(NUMBERS)}"
    client.create_topic(name, partitions=2)
    return name
