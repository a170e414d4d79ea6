"""A fenceline service for the tests of programs that use one: fixtures for pytest.

In ``conftest.py``::

    pytest_plugins = ["fenceline_testing"]

and in a test::

    def test_an_order_is_sent_once(fenceline_in_memory):
        client = fenceline_in_memory.client
        client.create_topic("orders")
        my_program.send_order(client, "book")
        assert [record.value for record in client.read("orders", 0, offset=0).records] == [b"book"]

``fenceline_in_memory`` takes milliseconds. ``fenceline_on_moto`` is the same service on moto's S3 and DynamoDB, with
the requests that would go to AWS. ``fenceline_server`` is a server at ``fenceline_server.url``, for programs that make
their own client; it takes a third of a second. All three run the handlers that Lambda runs, in this process, the first
two without a socket to the service. Each test gets an empty service.

The server needs ``fenceline-log[server]``, and the one on moto ``fenceline-log[aws]`` and ``moto[server]``. A fixture
that lacks a package fails with the line that installs it.

Rule: what a test learns here holds for a deployed service, races included. Every request to moto runs under one lock,
because in one of eight races of threads moto lets two writers win one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import pytest

from fenceline_testing.service import Fenceline, FencelineServer, in_memory, on_moto, serving

__all__ = [
    "Fenceline",
    "FencelineServer",
    "fenceline_in_memory",
    "fenceline_on_moto",
    "fenceline_server",
    "in_memory",
    "on_moto",
    "serving",
]


@pytest.fixture
def fenceline_in_memory() -> Iterator[Fenceline]:
    """Lend an empty fenceline in memory."""
    with in_memory() as lent:
        yield lent


@pytest.fixture
def fenceline_on_moto() -> Iterator[Fenceline]:
    """Lend an empty fenceline on moto's S3 and DynamoDB; needs fenceline-log[aws] and moto[server]."""
    _need("fenceline_on_moto", aws=("boto3", "obstore"), moto=("moto", "flask", "flask_cors"))
    with on_moto() as lent:
        yield lent


@pytest.fixture
def fenceline_server() -> Iterator[FencelineServer]:
    """Lend an empty fenceline at a URL, for programs that make their own client; needs fenceline-log[server]."""
    _need("fenceline_server", server=("httptools", "uvicorn", "uvloop"))
    with serving() as lent:
        yield lent


def _need(fixture: str, *, moto: Sequence[str] = (), **extras: Sequence[str]) -> None:
    """Fail a test in one line if ``fixture`` lacks a module of fenceline's extras, or moto."""
    missing = [extra for extra, modules in extras.items() if not _are_there(modules)]
    install = [f'"fenceline-log[{",".join(missing)}]"'] if missing else []
    install += [] if _are_there(moto) else ['"moto[server]"']
    if install:
        pytest.fail(f"{fixture} lacks packages; run: pip install {' '.join(install)}", pytrace=False)


def _are_there(modules: Sequence[str]) -> bool:
    return all(find_spec(module) is not None for module in modules)
