"""The changes that a dead process left by combining, by the rows of the table in the protocol, "What a crash leaves"
(I16).

Rule: nothing is owed for the round itself, because it is made before the first offer, and goes with its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fenceline.format import keys
from fenceline.ports import ItemKey

if TYPE_CHECKING:
    from tests.simulation.crash.rows import Difference, Stored


def _listed(stored: Stored) -> set[str]:
    lists = [value[1].get("offers", "") for key, value in stored.items() if key.startswith("log/")]
    return {offer for listed in lists for offer in listed.split(",")}


def _offers(difference: Difference) -> dict[str, str]:
    """Return the new offers' places, by id."""
    places = difference.changed_under("offers/") & difference.left.keys()
    return {keys.parse_offer_item(ItemKey(*place.split("#"))): place for place in places}


def _rounds(difference: Difference) -> set[str]:
    return {place for place in difference.changed_under("partition/") if place.endswith("#round")}


def _waiting(difference: Difference) -> set[str]:
    listed = _listed(difference.left)
    return {place for offer, place in _offers(difference).items() if offer not in listed}


def _bound(difference: Difference) -> set[str]:
    listed, left = _listed(difference.left), difference.left
    return {place for place in _rounds(difference) & left.keys() if set(left[place][1]["bound"]) - listed}


def _committed(difference: Difference) -> set[str]:
    listed = _listed(difference.left)
    return {place for offer, place in _offers(difference).items() if offer in listed}


COMBINING_ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "an offer, before its outcome": _waiting,
    "a round, before the create": _bound,
    "a create that lists offers, before they are deleted": _committed,
}


def settled_combining(difference: Difference) -> set[str]:
    """Return the rounds that bind nothing that is open, and the offers that are gone."""
    gone = difference.changed_under("offers/") - difference.left.keys()
    return gone | _rounds(difference) - _bound(difference)
