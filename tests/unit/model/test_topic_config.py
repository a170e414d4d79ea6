from __future__ import annotations

from typing import Any

import pytest

from fenceline.errors import InvalidRequestError
from fenceline.model import topic_config
from fenceline.model.topic import Topic

DEFAULTS = {
    "cleanup.policy": "delete",
    "compaction.order": "offset",
    "delete.retention.ms": 86_400_000,
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "max.message.bytes": 1_048_576,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": 2**63 - 1,
    "message.timestamp.after.max.ms": 3_600_000,
    "compression.type": "producer",
    "producer.id.expiration.ms": 86_400_000,
    "check.expected.offsets": True,
}


def test_the_names_and_defaults_are_those_of_the_api() -> None:
    assert topic_config.DEFAULTS == DEFAULTS


def test_a_setting_that_is_false_or_zero_is_not_the_default() -> None:
    given: dict[str, int | str | bool] = {"check.expected.offsets": False, "message.timestamp.after.max.ms": 0}
    topic = Topic("t", "id", 1, given, [], 0)
    assert topic.setting("check.expected.offsets") is False
    assert topic.setting("message.timestamp.after.max.ms") == 0
    assert topic.setting("retention.ms") == DEFAULTS["retention.ms"]


def test_a_change_keeps_the_other_names_and_null_returns_one_to_its_default() -> None:
    before = {"retention.ms": 5, "cleanup.policy": "compact"}
    after = topic_config.merged(before, {"retention.ms": None, "retention.bytes": 7, "max.message.bytes": None})
    assert after == {"cleanup.policy": "compact", "retention.bytes": 7}
    assert before == {"retention.ms": 5, "cleanup.policy": "compact"}


def test_an_order_by_timestamp_and_tombstones_that_go_are_refused_whichever_is_changed() -> None:
    kept = {"compaction.order": "timestamp", "delete.retention.ms": -1}
    assert topic_config.merged({}, kept) == kept
    before = topic_config.merged({}, kept)
    for config, change in (
        ({}, {"compaction.order": "timestamp"}),
        ({}, {"compaction.order": "timestamp", "delete.retention.ms": 0}),
        (before, {"delete.retention.ms": 86_400_000}),
        (before, {"delete.retention.ms": None}),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            topic_config.merged(config, change)
        assert raised.value.field == "config.delete.retention.ms"
    assert topic_config.merged(before, {"compaction.order": None, "delete.retention.ms": None}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", -1),
        ("retention.ms", 2**63 - 1),
        ("retention.bytes", -1),
        ("max.message.bytes", 4_194_304),
        ("compression.type", "zstd"),
        ("message.timestamp.type", "LogAppendTime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("compaction.order", "offset"),
        ("delete.retention.ms", -1),
        ("check.expected.offsets", False),
    ],
)
def test_a_value_of_the_api_is_taken(name: str, value: Any) -> None:
    assert topic_config.merged({}, {name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", -2),
        ("retention.ms", 2**63),
        ("retention.ms", "1"),
        ("retention.ms", True),
        ("retention.ms", 1.0),
        ("retention.bytes", -2),
        ("max.message.bytes", 4_194_305),
        ("max.message.bytes", -1),
        ("message.timestamp.before.max.ms", -1),
        ("message.timestamp.after.max.ms", -1),
        ("compression.type", "brotli"),
        ("compression.type", []),
        ("cleanup.policy", "compact,compact"),
        ("cleanup.policy", {}),
        ("compaction.order", "time"),
        ("delete.retention.ms", -2),
        ("check.expected.offsets", 1),
        ("check.expected.offsets", "true"),
        ("segment.bytes", 1),
        ("", 1),
    ],
)
def test_any_other_name_or_value_is_refused_and_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        topic_config.merged({}, {"retention.ms": 1, name: value})
    assert refusal.value.field == f"config.{name}"
