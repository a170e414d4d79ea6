"""What the contract tests run against: servers, adapters opened by name, and skips where a server can't be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.stores import ITEM_STORES, OBJECT_STORES, Adapter, OpenItems, OpenObjects
from tests.servers.install import CannotInstall
from tests.servers.moto_lock import locked_moto
from tests.servers.run import CREDENTIALS, Servers, variable_of

# Tests whose keys are both a file and a folder. S3 takes such keys, and a store over a folder can't.
ANY_KEY = {
    "test_an_absent_object_is_not_found_and_can_then_be_created",
    "test_a_listing_is_in_the_order_of_utf_8_bytes",
    "test_a_prefix_takes_what_begins_with_it_and_nothing_else",
    "test_any_listing_is_the_sorted_slice_of_the_keys",
}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each test that needs a server, real or emulated, out of ``make check``, and those of a server together.

    Items are tried on one server by day, and objects on two, because only the second of these takes any key.
    """
    for item in items:
        used = getattr(item, "callspec", None)
        for name in used.params.values() if used else ():
            adapter = {**OBJECT_STORES, **ITEM_STORES}.get(name) if isinstance(name, str) else None
            if adapter and adapter.server:
                item.add_marker(pytest.mark.slow)
                item.add_marker(pytest.mark.xdist_group(adapter.server))
                if adapter.is_nightly:
                    item.add_marker(pytest.mark.prove)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Lend the real servers, each started when the first test asks for it."""
    with Servers() as running:
        yield running


@pytest.fixture
def surroundings(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    with ExitStack() as stack:
        yield Surroundings(servers, monkeypatch, stack)


class Surroundings:
    """The servers, the place and the settings that a test's adapter runs against."""

    def __init__(self, servers: Servers, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self._servers = servers
        self._monkeypatch = monkeypatch
        self._stack = stack

    def need(self, adapter: Adapter) -> None:
        """Start the server, for this process and those it starts; skip the test where the server can't be had."""
        if adapter.server is None:
            return
        for name, value in CREDENTIALS.items():
            self._monkeypatch.setenv(name, value)
        if adapter.server == "moto":
            self._monkeypatch.setenv(variable_of("moto"), self._stack.enter_context(locked_moto()))
            return
        try:
            self._servers.need(adapter.server)
        except CannotInstall as error:
            if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
                raise
            pytest.skip(f"not run on {adapter.server}: {error}")


@pytest.fixture(params=OBJECT_STORES)
def objects(request: pytest.FixtureRequest, surroundings: Surroundings, tmp_path: Path) -> Iterator[OpenObjects]:
    adapter = OBJECT_STORES[request.param]
    if adapter.is_folder and request.function.__name__ in ANY_KEY:
        pytest.skip(f"not run on {request.param}: it keeps objects as files, and no key can be another's folder")
    surroundings.need(adapter)
    store = adapter.open(str(tmp_path))
    yield store
    store.close()


@pytest.fixture(params=ITEM_STORES)
def items(request: pytest.FixtureRequest, surroundings: Surroundings, tmp_path: Path) -> Iterator[OpenItems]:
    adapter = ITEM_STORES[request.param]
    surroundings.need(adapter)
    store = adapter.open(str(tmp_path))
    yield store
    store.close()


@pytest.fixture(params=[name for name, adapter in OBJECT_STORES.items() if adapter.is_shared])
def shared_objects(request: pytest.FixtureRequest, surroundings: Surroundings) -> str:
    """Return the name of an adapter that several processes may open at one place."""
    surroundings.need(OBJECT_STORES[request.param])
    name: str = request.param
    return name


@pytest.fixture(params=[name for name, adapter in ITEM_STORES.items() if adapter.is_shared])
def shared_items(request: pytest.FixtureRequest, surroundings: Surroundings) -> str:
    """Return the name of an adapter that several processes may open at one place."""
    surroundings.need(ITEM_STORES[request.param])
    name: str = request.param
    return name
