"""One item transaction: what it writes, what it requires, and when it writes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.rules import AccessItem
from fenceline.access.session_item import SessionItem
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.ports import Check, Put
from tests.support.runtime import FakeRuntime

RUNTIME = FakeRuntime()
SESSION = replace(session_item.created("a" * 32, principal="", lease_ms=1_000, now_ms=0), version=7)
KEY = keys.access_item("t", 0)
ITEM = AccessItem(epoch=3, version=5)
NEW_TOPIC = Check(keys.topic_item("orders"), 9)


def transaction(*sessions: SessionItem) -> ItemTransaction:
    return ItemTransaction({one.session_id: one for one in sessions}, if_made=NEW_TOPIC, too_large="claim; claim less")


def test_an_unchanged_item_is_not_written() -> None:
    made = transaction(SESSION)
    made.change(KEY, ITEM, ITEM)
    made.change_session(SESSION)
    made.require(SESSION.key, SESSION.version)
    assert made.changes(RUNTIME) == []


def test_each_change_is_on_the_version_that_was_read() -> None:
    made = transaction(SESSION)
    after, renewed = replace(ITEM, epoch=4), session_item.renewed(SESSION, 500)
    made.change(KEY, ITEM, after)
    made.change_session(renewed)
    assert made.session(SESSION.session_id) == renewed
    assert made.changes(RUNTIME) == [Put(KEY, after.to_value(), 6, 5), Put(SESSION.key, renewed.to_value(), 8, 7)]


def test_a_required_item_is_a_condition_unless_it_is_written() -> None:
    made = transaction(SESSION)
    made.require(KEY, 5)
    made.require(SESSION.key, 7)
    made.change_session(session_item.renewed(SESSION, 500))
    (written, required) = made.changes(RUNTIME)
    assert (written.key, required) == (SESSION.key, Check(KEY, 5))


def test_only_an_item_that_was_not_there_needs_the_condition_on_what_it_belongs_to() -> None:
    for version, conditions in ((5, []), (None, [NEW_TOPIC])):
        made = transaction()
        made.put(KEY, replace(ITEM, version=version))
        (written, *others) = made.changes(RUNTIME)
        assert (written.expected, others) == (version, conditions)


def test_more_than_one_write_takes_is_refused() -> None:
    made = transaction()
    for partition in range(limits.TRANSACTION_ITEMS_MAX):
        made.put(keys.access_item("t", partition), ITEM)
    assert len(made.changes(RUNTIME)) == limits.TRANSACTION_ITEMS_MAX
    made.require(SESSION.key, 7)
    with pytest.raises(ThrottledError, match="too many other sessions are in the way of one claim; claim less"):
        made.changes(RUNTIME)
