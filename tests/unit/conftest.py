from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service import TOPIC, Service, serve, serve_in_real_time


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory whose clocks stand still, with one topic of one partition."""
    made = serve()
    made.log.topics.create(TOPIC)
    yield made
    made.close()


@pytest.fixture
def live_service() -> Iterator[Service]:
    """The same, with the machine's clocks: for threads that wait."""
    made = serve_in_real_time(timeout_ms=300_000)
    made.log.topics.create(TOPIC)
    yield made
    made.close()


@pytest.fixture
def wide() -> Iterator[Service]:
    """The one whose clocks stand still, with a topic of 40 partitions."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=40)
    yield made
    made.close()
