"""Lifecycle: the creation and the deletion of subscriptions (protocol, "Creating and deleting a subscription").

Rule: an item under ``unowned``, the note, names cursors that no subscription has, not yet or no longer. The note exists
from before the first of these cursors is made until the last is gone, so that a process that dies while it creates or
deletes a subscription leaves nothing that is not found again. A creation checks the note in each of its writes, and its
last write, which makes the subscription, deletes the note. So once the sweeper has taken the note over, the creation
fails.

Not here: the sweeper's deletions by these notes (``sweeper.subscription_expiry``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import UnknownSubscriptionError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items
from fenceline.log.retry import Attempts
from fenceline.model.topic import Topic
from fenceline.ports import Check, Delete, Put, StoreFact, VersionMoved
from fenceline.subscriptions import cursor_store, heads
from fenceline.subscriptions.cursor_store import StoredCursor
from fenceline.subscriptions.cursors import LiveTopic
from fenceline.subscriptions.items import CursorItem, SubscriptionItem

_TIDY_MS = 10_000  # for which a request deletes cursors; the sweeper deletes the rest
_TIDY_DELETES = 100_000


def new_subscription(context: Context, topic: Topic, name: str, *, is_replicated: bool = False) -> SubscriptionItem:
    runtime = context.runtime
    now_ms, version = runtime.now_ms(), runtime.fresh_version()
    return SubscriptionItem(
        topic.name, topic.topic_id, name, runtime.fresh_id(), is_replicated, now_ms, version=version
    )


def creation(made: SubscriptionItem) -> Put:
    """Return the write that makes the subscription exist, unless another has its name."""
    return Put(keys.subscription_item(made.topic_id, made.name), made.to_value(), made.version, expected=None)


class Advice(NamedTuple):
    """Advice to the consumers of a subscription where to read; ``None`` ends an earlier advice."""

    region: str | None


def ensure(
    live: LiveTopic,
    name: str,
    *,
    is_latest: bool,
    replicate_subscription_state: bool | None,
    active_region: Advice | None = None,
) -> tuple[SubscriptionItem, bool]:
    """Create a subscription, or change the given settings of an existing one. Return True with it if it was created.

    Raises:
        ContendedError, StoreUnavailableError: Nothing was created or changed.
        OutcomeUnknownError: The subscription may have been created or changed.
    """
    tried: set[str] = set()
    attempts = Attempts(live.context.runtime, "the subscription's item")
    while True:
        with attempts:
            found = cursor_store.find(live.context, live.topic.topic_id, name)
            if found is None:
                made = new_subscription(
                    live.context, live.topic, name, is_replicated=bool(replicate_subscription_state)
                )
                made = _advised(made, active_region)
                tried.add(made.subscription_id)
                _create(live, made, is_latest=is_latest)
                return made, True
            if found.subscription_id in tried:  # made by this request, in an attempt that was not answered
                return found, True
            changed = _advised(_switched(found, replicate_subscription_state), active_region)
            changed = replace(changed, heard=None)  # it is this caller's from now on
            if changed == found:
                return found, False
            change = cursor_store.change_of(found, changed)
            live.context.items.write([change])
            return replace(changed, version=change.version), False


def _switched(found: SubscriptionItem, replicate_subscription_state: bool | None) -> SubscriptionItem:
    """Return the subscription replicated or not. Once replication is on, the other regions hear of it again."""
    if replicate_subscription_state in (None, found.replicate_subscription_state):
        return found
    return replace(
        found,
        replicate_subscription_state=bool(replicate_subscription_state),
        told=(),
        is_active=found.is_active or bool(replicate_subscription_state),
    )


def _advised(found: SubscriptionItem, advice: Advice | None) -> SubscriptionItem:
    """Return the subscription with an advice, which the other regions get with the next UPDATE, which is then due."""
    if advice is None or advice.region == found.active_region:
        return found
    number = min(found.active_n + 1, limits.INT64_MAX)  # the other regions refuse a higher number
    return replace(found, active_region=advice.region, active_n=number, told=())


def _create(live: LiveTopic, made: SubscriptionItem, *, is_latest: bool) -> None:
    """Make the cursors, then the subscription.

    A creation that loses the name to another one has made cursors that no subscription has.
    """
    context, cursors = live.context, _latest(live, made) if is_latest else []
    at_once = limits.TRANSACTION_ITEMS_MAX - 2
    if len(cursors) <= at_once:
        context.items.write([*cursors, creation(made)])
        return
    note = _note(context, made)
    context.items.write([note])
    try:
        for at in range(0, len(cursors), at_once):
            context.items.write([*cursors[at : at + at_once], Check(note.key, note.version)])
        context.items.write([creation(made), Delete(note.key, note.version)])
    except VersionMoved:
        _tidy(context, made, note)
        raise


def _latest(live: LiveTopic, made: SubscriptionItem) -> list[Put]:
    """Return the cursors of a subscription that begins at the end. A cursor at offset 0 needs none.

    It begins at the last stable offset ("Readers of transactions"), so that no record that is committed later is lost.
    """
    return [
        cursor_store.move(live.context, StoredCursor(made, number), CursorItem(end)).cursor
        for number, end in enumerate(heads.stable_ends(live))
        if end
    ]


def _note(context: Context, subscription: SubscriptionItem) -> Put:
    key = keys.unowned_item(subscription.topic_id, subscription.subscription_id)
    value: dict[str, str | int] = {"name": subscription.name, "since": context.runtime.now_ms()}
    return Put(key, value, context.runtime.fresh_version(), expected=None)


def delete(live: LiveTopic, name: str, *conditions: Check) -> None:
    """Delete a subscription, and then its cursors.

    Args:
        conditions: What must hold in the write that ends it. The caller finds out why one does not.

    Raises:
        VersionMoved: A condition does not hold. The subscription still exists.
        UnknownSubscriptionError: No subscription has the name.
        ContendedError, StoreUnavailableError: The subscription still exists.
        OutcomeUnknownError: The subscription may still exist.
    """
    context = live.context
    going: SubscriptionItem | None = None
    attempts = Attempts(context.runtime, "the subscription's item")
    while True:
        with attempts:
            try:
                found = live.subscription(name)
            except UnknownSubscriptionError:
                if going is None:
                    raise
                return  # deleted by an attempt that was not answered, or by another request
            if going is not None and going.subscription_id != found.subscription_id:
                return  # deleted, and created again since
            going = found
            try:
                end(context, found, *conditions)
            except VersionMoved as moved:
                if any(moved.key == one.key for one in conditions):
                    break
                raise
            return
    raise VersionMoved(conditions[0].key)


def end(context: Context, found: SubscriptionItem, *conditions: Check) -> None:
    """Delete a subscription as it was found, and then its cursors.

    Raises:
        VersionMoved: It was changed meanwhile, or a condition does not hold. It still exists.
        Unavailable: It still exists.
        NoAnswer: It may still exist.
    """
    note = _note(context, found)
    # From this write on the subscription does not exist, and the note names its remaining cursors.
    context.items.write([Delete(keys.subscription_item(found.topic_id, found.name), found.version), note, *conditions])
    _tidy(context, found, note)


def _tidy(context: Context, gone: SubscriptionItem, note: Put) -> None:
    """Delete the cursors that the note names, and then the note. The sweeper deletes those that are left."""
    budget = Budget(context, context.runtime.monotonic_ms() + _TIDY_MS, _TIDY_DELETES)
    with suppress(StoreFact):
        if delete_cursors(context, gone.topic_id, gone.subscription_id, gone.name, budget):
            context.items.write([Delete(note.key, note.version)])


# Collecting


def delete_cursors(context: Context, topic_id: str, subscription_id: str, name: str, budget: Budget) -> bool:
    """Delete a subscription's cursors, then its chunks, which only its writes make. Return True if none is left."""
    for partition, prefix in (
        (keys.cursor_items(name), keys.cursors_prefix(topic_id, subscription_id)),
        (keys.chunk_items(subscription_id), ""),
    ):
        while found := context.items.query(partition, prefix=prefix, limit=limits.LIST_MAX):
            delete_items(context, found, budget)
            if budget.is_over():
                return False
    return True
