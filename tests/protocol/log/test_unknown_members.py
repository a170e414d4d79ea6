"""Segments with metadata that this version has no name for: a newer function wrote them, or a tool copied them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format.segment import Segment
from fenceline.log.context import Context
from fenceline.log.state import apply
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import verify_partition
from tests.support.service import REGION, TOPIC, LogBuilder, Part, Service, append, data
from tests.support.sweeping import HOUR, check_all, head_of, swept

NEW = (("a-region-set", "eu,us"), ("combined", "3"))


class NewerLog(LogBuilder):
    """A log of a newer version, which says more of a segment, and chains all of it."""

    def make(self, *parts: Part, **options: Any) -> Segment:
        made = super().make(*parts, **options)
        return made._replace(metadata=made.metadata._replace(unknown=NEW).chained(self.state.chain, made.body))


class CopiedLog(LogBuilder):
    """A log copied by a tool, which adds what it knows of each object."""

    def make(self, *parts: Part, **options: Any) -> Segment:
        made = super().make(*parts, **options)
        return made._replace(metadata=made.metadata._replace(unknown=(("mtime", "1700000000.5"),)))


@pytest.mark.parametrize("build", [NewerLog, CopiedLog])
def test_a_segment_with_more_members_is_read_followed_appended_behind_verified_and_rebuilt(
    service: Service, build: Callable[..., LogBuilder]
) -> None:
    made = build(topic_id=service.topic_id())
    for n in range(3):
        made.add(data(f"v{n}", producer=(7, 0, n)))
    made.store(service.objects)
    old = service.another()
    assert append(old, "v2", producer=(7, 0, 2)).duplicate
    assert append(old, "v3", producer=(7, 0, 3)).base_offset == 3
    # The other writer goes on after what this version wrote.
    made.state = apply(made.state, service.segments()[3], region=REGION).state
    made.add(data("v4", producer=(7, 0, 4)))
    made.store(service.objects, start=3)
    assert append(old, "v5", producer=(7, 0, 5)).base_offset == 5

    assert service.values() == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v5"]
    assert [entry.base_offset for entry in service.another().partitions.segments(TOPIC, 0).segments] == [*range(6)]
    service.another().partitions.checkpoint(TOPIC, 0)
    verified = verify_partition(service.another().context, service.log.topics.get(TOPIC), 0)
    assert verified.broken_at is None, verified

    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, REGION))
    head = head_of(items, service.topic_id())
    assert head.state == head_of(service.items.store, service.topic_id()).state
    items.close()


def test_it_ages_and_goes_like_any_other(service: Service) -> None:
    made = NewerLog(topic_id=service.topic_id())
    for n in range(3):
        made.add(data(f"v{n}"))
    made.store(service.objects)
    service.log.topics.alter(TOPIC, config={"retention.ms": HOUR})
    service.runtime.advance(2 * HOUR)
    assert (swept(service).log_starts, service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset) == (1, 3)
    service.runtime.advance(2 * HOUR)
    assert swept(service).objects == 3
    check_all(service)
