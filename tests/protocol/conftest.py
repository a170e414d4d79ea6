"""What several modules of protocol tests begin with."""

from __future__ import annotations

import pytest

from tests.support.coordinating import Coordinator
from tests.support.service import TOPIC, Service, request


@pytest.fixture
def txn(service: Service) -> Coordinator:
    """A producer, with what its coordinator answers, whose transactions the service's log admits."""
    made = Coordinator(service)
    made.serves(service.log)
    return made


@pytest.fixture
def topics(service: Service) -> Service:
    """Return two topics of three partitions, each with ten records."""
    service.log.topics.alter(TOPIC, partitions=3)
    service.log.topics.create("clicks", partitions=3)
    for topic in (TOPIC, "clicks"):
        for partition in range(3):
            service.log.append(topic, partition, request(*map(str, range(10))))
    return service
