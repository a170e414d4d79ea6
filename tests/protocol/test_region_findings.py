"""Regions: what an attack on the protocol found, each as it went wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def subscribe(region: Region, name: str = "s") -> None:
    region.log.subscriptions.subscribe(TOPIC, name, is_latest=False, replicate_subscription_state=True)


def test_updates_that_another_process_has_applied_cost_this_one_no_lease(world: RegionWorld) -> None:
    other = world["b"].replicator(world["b"].another())
    world["b"].pull()
    other.run(TOPIC, 0)
    subscribe(world["a"])
    world["a"].pull()  # tells that the subscription exists
    other.run(TOPIC, 0)
    world["b"].log.partitions.offsets(TOPIC, 0)  # so that this process knows the log, and not the item
    before = world["b"].service.count()["items.write"]
    world["b"].pull()
    assert world["b"].service.count()["items.write"] == before
