"""Rows of the table in the protocol, "What a crash leaves", about transactions.

Coordinators, admissions, endings and pending offsets leave these half done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fenceline.format import keys
from fenceline.format.batch import headers
from fenceline.format.control import ABORT, COMMIT, parse_marker
from fenceline.model.transaction import EMPTY, ONGOING
from fenceline.ports import Item, ItemKey
from fenceline.transactions.item import TransactionItem, transaction_from_item

if TYPE_CHECKING:
    from tests.simulation.crash.rows import Difference

PLACES = ("transactions/", "producer-ids/")
RECOVERED = "recovered-"


def transactions_of(stored: Mapping[str, Any]) -> dict[str, TransactionItem]:
    """Return the coordinators' items, by their place in what is stored."""
    found = {}
    for place, value in stored.items():
        if place.startswith("transactions/"):
            partition, sort = place.split("#")
            found[place] = transaction_from_item(Item(ItemKey(partition, sort), *value))
    return found


def outcomes_of(stored: Mapping[str, Any], topic_id: str, partition: int) -> Iterator[tuple[str, int, int, bool]]:
    """Yield (key, producer id, epoch, whether it commits) of each transaction marker of a partition, in order."""
    prefix = keys.log_prefix(topic_id, partition)
    for key in sorted(key for key in stored if key.startswith(prefix)):
        body = stored[key][0]
        for position, header in headers(body):
            if header.is_control and (marker := parse_marker(body, position, header)).type in (ABORT, COMMIT):
                yield key, header.producer_id, header.producer_epoch, marker.type == COMMIT


def _has_batch(stored: Mapping[str, Any], topic_id: str, partition: int, pair: tuple[int, int]) -> bool:
    prefix = keys.log_prefix(topic_id, partition)
    return any(
        header.is_transactional and not header.is_control and (header.producer_id, header.producer_epoch) == pair
        for key, value in stored.items()
        if key.startswith(prefix)
        for _, header in headers(value[0])
    )


def pending_of(stored: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield (place, producer id, epoch) of each pending offset."""
    for place, value in stored.items():
        if place.startswith("cursors/"):
            for producer_id, (epoch, *_) in value[1].get("pending", {}).items():
                yield place, int(producer_id), epoch


def _changed(difference: Difference) -> dict[str, TransactionItem]:
    """Return the coordinators' items that the process changed; those of a rebuild are not meant."""
    found = transactions_of({place: difference.left[place] for place in difference.changed & difference.left.keys()})
    return {place: item for place, item in found.items() if not item.transactional_id.startswith(RECOVERED)}


def _known(difference: Difference, item: TransactionItem) -> set[str]:
    """Return the item of the producer id, where it changed."""
    key = keys.transactional_id_item(item.producer_id)
    return {f"{key.partition}#{key.sort}"} & difference.changed


def _places(item: TransactionItem) -> list[tuple[str, int]]:
    return [(one.topic_id, number) for one in item.partitions for number in one.partitions]


def _new_epoch(difference: Difference) -> set[str]:
    found = set()
    for place, item in _changed(difference).items():
        if item.state == EMPTY:
            found |= {place, *_known(difference, item)}
    return found


def _admitted(difference: Difference) -> set[str]:
    """Return the transactions that name a partition in which they have nothing."""
    before = transactions_of(difference.before)
    found = set()
    for place, item in _changed(difference).items():
        was = _places(before[place]) if place in before and before[place].state == ONGOING else []
        if item.state == ONGOING:
            added = [where for where in _places(item) if where not in was]
            if any(not _has_batch(difference.left, *where, item.pair) for where in added):
                found.add(place)
    return found


def _sent(difference: Difference) -> set[str]:
    ongoing: dict[tuple[int, int], str] = {
        item.pair: place for place, item in transactions_of(difference.left).items() if item.state == ONGOING
    }
    found = set()
    for place, producer_id, epoch in pending_of(difference.left):
        if place in difference.changed and (producer_id, epoch) in ongoing:
            found |= {place, ongoing[producer_id, epoch]} | difference.changed_under("subscriptions/")
    return found & difference.changed


def _prepared(difference: Difference, *, is_all_done: bool) -> set[str]:
    """Return the changes of the decision and of the parts of the ending, if Complete* is missing, or more."""
    found = set()
    for place, item in transactions_of(difference.left).items():
        if not item.is_prepared or item.transactional_id.startswith(RECOVERED):
            continue
        marked = [_has_marker(difference.left, *where, item.pair) for where in _places(item)]
        is_settled = not any(one[1] == item.producer_id for one in pending_of(difference.left))
        if (all(marked) and is_settled) is is_all_done:
            found |= {place} | _outcomes(difference)
            found |= difference.changed_under("cursors/") | difference.changed_under("once/")
    return found & difference.changed


def _has_marker(stored: Mapping[str, Any], topic_id: str, partition: int, pair: tuple[int, int]) -> bool:
    return any((found[1], found[2]) == pair for found in outcomes_of(stored, topic_id, partition))


def _outcomes(difference: Difference) -> set[str]:
    """Return the new segments of transaction markers."""
    found = set()
    for key in difference.changed_under("log/") & difference.left.keys():
        topic_id, partition, _ = keys.parse_segment_key(key)
        found |= {key} & {one[0] for one in outcomes_of(difference.left, topic_id, partition)}
    return found


def _fenced(difference: Difference) -> set[str]:
    return {place for place, item in _changed(difference).items() if item.is_fenced}


def _recovered(difference: Difference) -> set[str]:
    is_under_way = any(place.startswith(f"{keys.REBUILDING.partition}#") for place in difference.left)
    made = {place for place in difference.changed if place.startswith(PLACES)}
    return made if is_under_way else set()


TRANSACTION_ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "an epoch, before its answer": _new_epoch,
    "an admission, before its batch": _admitted,
    "pending offsets, before the answer": _sent,
    "Prepare\\*, before some markers or cursors": lambda d: _prepared(d, is_all_done=False),
    "all of them, before Complete\\*": lambda d: _prepared(d, is_all_done=True),
    "a fencing abort, before the new epoch": _fenced,
    "some of a rebuild's `recovered-…`": _recovered,
}


def settled_transactions(difference: Difference) -> set[str]:
    """Return the items and markers of transactions that no row is about: nothing is owed for any of them."""
    owed = set().union(*(find(difference) for find in TRANSACTION_ROWS.values()))
    items = {place for place in difference.changed if place.startswith(PLACES)}
    return (items | _outcomes(difference)) - owed
