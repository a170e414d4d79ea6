"""What all tests share: how many examples a property is tried on, and what each test would read again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from unittest import mock

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

from tests.support.service import TOPIC, Service, serve, serve_in_real_time

FIXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
settings.register_profile("all", FIXED, max_examples=50)  # for CI
settings.register_profile("quick", FIXED, max_examples=15)  # for `make check`
settings.register_profile("fresh", FIXED, max_examples=100, derandomize=False)  # untried ones, for `make simulate`
settings.load_profile("all")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without looking for garbage, which takes two fifths of the time, and never look at them again.

    Each worker keeps 14,000 tests and their modules until it ends, so no search finds garbage among them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests, processes first, because a long test that begins last keeps one worker alone.

    xdist's groups are kept together here, because xdist 3.8 writes a test's group where pytest 9.2 does not read it.
    """

    def rank(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("slow") is None, "processes" not in item.path.parts

    items.sort(key=rank)
    for item in items:
        named = vars(item).get("_nodeid")
        if named is not None:
            item._id = type(item._id).parse(named)


@pytest.fixture(scope="session", autouse=True)
def botocore_reads_its_descriptions_once() -> Iterator[None]:
    """Read botocore's descriptions once: reading them for each client anew takes 0.1 s."""
    with mock.patch.object(botocore.session, "create_loader", cache(botocore.session.create_loader)):
        yield


@pytest.fixture
def service() -> Iterator[Service]:
    """Return a service in memory whose clocks stand still, with one topic of one partition."""
    made = serve()
    made.log.topics.create(TOPIC)
    yield made
    made.close()


@pytest.fixture
def live_service() -> Iterator[Service]:
    """Return such a service with the machine's clocks: for threads that wait."""
    made = serve_in_real_time(timeout_ms=300_000)
    made.log.topics.create(TOPIC)
    yield made
    made.close()


@pytest.fixture
def wide() -> Iterator[Service]:
    """Return the service whose clocks stand still, with a topic of 40 partitions."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=40)
    yield made
    made.close()
