from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.format import keys

OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = st.integers(0, 9_999)
TOPIC_ID = "0123456789abcdef0123456789abcdef"


def test_every_key_is_as_design_says() -> None:
    assert keys.segment_key("t", 7, 42) == "log/t/00007/00000000000000000042.log"
    assert keys.state_key("t", 7, 42) == "state/t/00007/00000000000000000042.json"
    assert keys.topic_key("t", 3) == "topic/t/0000000003.json"


@given(PARTITIONS, OFFSETS)
def test_every_key_is_parsed_back(partition: int, offset: int) -> None:
    place = (TOPIC_ID, partition, offset)
    assert keys.parse_segment_key(keys.segment_key(*place)) == place
    assert keys.parse_state_key(keys.state_key(*place)) == place
    assert keys.parse_topic_key(keys.topic_key(TOPIC_ID, partition)) == (TOPIC_ID, partition)
    assert keys.parse_producer_item(keys.producer_item(*place)) == offset


@given(OFFSETS, OFFSETS)
def test_keys_are_in_the_order_of_offsets(one: int, other: int) -> None:
    by_offset = one < other
    assert (keys.segment_key("t", 0, one) < keys.segment_key("t", 0, other)) == by_offset
    assert (keys.state_key("t", 0, one) < keys.state_key("t", 0, other)) == by_offset
    assert (keys.aborted_sort(one) < keys.aborted_sort(other)) == by_offset


def test_a_prefix_covers_its_own_partition_and_no_other() -> None:
    assert keys.segment_key("t", 1, 0).startswith(keys.log_prefix("t", 1))
    assert not keys.segment_key("t", 10, 0).startswith(keys.log_prefix("t", 1))
    assert not keys.segment_key("tt", 1, 0).startswith(keys.log_prefix("t", 1))
    assert keys.topic_key("t", 0).startswith(keys.topic_prefix("t"))
    assert keys.topic_prefix("t").startswith(keys.TOPIC_PREFIX)
    assert keys.state_key("t", 1, 0).startswith(keys.state_prefix("t", 1))


def test_a_key_of_another_kind_is_refused() -> None:
    segment, state, topic = keys.segment_key("t", 0, 0), keys.state_key("t", 0, 0), keys.topic_key("t", 0)
    for parse, others in (
        (keys.parse_segment_key, (state, topic, "log/t/00000/1.json", "log/t/00000/x.log")),
        (keys.parse_state_key, (segment, topic, "state/t/00000/1.log")),
        (keys.parse_topic_key, (segment, state, "topic/t/1.log")),
    ):
        for other in others:
            with pytest.raises(ValueError):
                parse(other)
