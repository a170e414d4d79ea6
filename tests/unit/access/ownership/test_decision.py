"""Every row of the table of ownership, the names of resources, and what is kept of them.

Protocol, "Ownership (Single Reader/Writer)".
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.access.ownership.decision import CurrentOwner, Granted, decide, owned_by, released
from fenceline.access.resources import (
    OwnershipItem,
    Resource,
    check_released,
    check_resource,
    check_wanted,
    partition_named,
)
from fenceline.errors import FencelineError, InvalidRequestError, ResourceOwnedError, StaleGenerationError
from fenceline.format import keys
from fenceline.model.requests import OwnTarget

TOP = limits.GENERATION_MAX
LAST = 5  # the last granted generation

OWNED, SEVERED, KEPT = "OWNED", "SEVERED", "KEPT"
STALE, BUSY = "STALE_GENERATION", "RESOURCE_OWNED"

# (row of the table, live owner, last granted, asked) -> (result, generation)
ROWS: list[tuple[str, CurrentOwner, int, int | None, str, int]] = [
    ("none, none", CurrentOwner.NONE, LAST, None, OWNED, LAST + 1),
    ("none, none: first ever 1", CurrentOwner.NONE, 0, None, OWNED, 1),
    ("none, none: just below the top", CurrentOwner.NONE, TOP - 1, None, OWNED, TOP),
    ("none, none: at the top", CurrentOwner.NONE, TOP, None, STALE, TOP),
    ("none, g equal", CurrentOwner.NONE, LAST, LAST, OWNED, LAST),
    ("none, g higher", CurrentOwner.NONE, LAST, LAST + 9, OWNED, LAST + 9),
    ("none, g: first ever any", CurrentOwner.NONE, 0, 77, OWNED, 77),
    ("none, g: the top", CurrentOwner.NONE, TOP, TOP, OWNED, TOP),
    ("none, g lower", CurrentOwner.NONE, LAST, LAST - 1, STALE, LAST),
    ("other, g lower", CurrentOwner.OTHER, LAST, LAST - 1, STALE, LAST),
    ("other, none", CurrentOwner.OTHER, LAST, None, BUSY, LAST),
    ("other, none: at the top", CurrentOwner.OTHER, TOP, None, BUSY, TOP),
    ("other, g equal", CurrentOwner.OTHER, LAST, LAST, SEVERED, LAST),
    ("other, g higher", CurrentOwner.OTHER, LAST, LAST + 1, SEVERED, LAST + 1),
    ("none, 0", CurrentOwner.NONE, LAST, 0, OWNED, 1),
    ("none, 0: first ever", CurrentOwner.NONE, 0, 0, OWNED, 1),
    ("other, 0", CurrentOwner.OTHER, LAST, 0, SEVERED, 1),
    ("other, 0: at the top", CurrentOwner.OTHER, TOP, 0, SEVERED, 1),
    ("the same session, none", CurrentOwner.SAME, LAST, None, KEPT, LAST),
    ("the same session, none: at the top", CurrentOwner.SAME, TOP, None, KEPT, TOP),
    ("the same session, equal", CurrentOwner.SAME, LAST, LAST, KEPT, LAST),
    ("the same session, higher", CurrentOwner.SAME, LAST, LAST + 3, KEPT, LAST + 3),
    ("the same session, lower", CurrentOwner.SAME, LAST, LAST - 1, STALE, LAST),
    ("the same session, 0", CurrentOwner.SAME, LAST, 0, KEPT, 1),
    # A live exclusive producer owns with the last granted generation, 0 if there was none.
    ("a producer, none", CurrentOwner.OTHER, 0, None, BUSY, 0),
    ("a producer, g", CurrentOwner.OTHER, 0, 1, SEVERED, 1),
    ("a producer, 0", CurrentOwner.OTHER, 0, 0, SEVERED, 1),
    ("the same session's producer, none", CurrentOwner.SAME, 0, None, KEPT, 1),
    ("the same session's producer, g", CurrentOwner.SAME, 0, 4, KEPT, 4),
]


def result_of(owner: CurrentOwner, verdict: Granted | FencelineError) -> tuple[str, int]:
    if isinstance(verdict, FencelineError):
        assert verdict.resource == "r"
        return verdict.code, verdict.generation
    result = KEPT if verdict.is_kept else SEVERED if owner is CurrentOwner.OTHER else OWNED
    return result, verdict.generation


@pytest.mark.parametrize(
    ("owner", "last", "asked", "result", "generation"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_each_row_of_the_table(owner: CurrentOwner, last: int, asked: int | None, result: str, generation: int) -> None:
    assert result_of(owner, decide("r", last, owner, asked)) == (result, generation)


def test_a_stale_claim_names_both_generations_and_the_remedy() -> None:
    lower = decide("r", 5, CurrentOwner.NONE, 3)
    assert isinstance(lower, FencelineError)
    assert lower.detail.startswith(
        "the resource's last granted generation is 5, and 3 is lower; claim it with 5 or more, or"
    )
    full = decide("r", TOP, CurrentOwner.NONE, None)
    assert isinstance(full, FencelineError)
    assert (
        f"generation is {TOP}, and there is no higher one; claim it with generation {TOP} itself, or with 0"
        in full.detail
    )


generations = st.integers(0, TOP) | st.integers(0, 9)


@given(generations, st.sampled_from(CurrentOwner), st.none() | generations)
def test_only_a_claim_with_0_brings_a_generation_down_and_only_a_claim_with_one_severs(
    last: int, owner: CurrentOwner, asked: int | None
) -> None:
    verdict = decide("r", last, owner, asked)
    if isinstance(verdict, Granted):
        assert verdict.generation >= (1 if asked == 0 else max(last, 1))
        assert verdict.generation in (asked or 1, last + 1, last)
        assert verdict.is_kept == (owner is CurrentOwner.SAME)
        assert owner is not CurrentOwner.OTHER or asked is not None
    else:
        assert verdict.next_step == "fix"
        assert verdict.generation == last
        assert isinstance(
            verdict, StaleGenerationError if asked is not None or last == TOP else ResourceOwnedError
        ) or (owner is CurrentOwner.OTHER and asked is None)


@given(generations, st.none() | generations)
def test_the_same_request_repeated_by_the_owner_is_granted_the_same(last: int, asked: int | None) -> None:
    first = decide("r", last, CurrentOwner.NONE, asked)
    if isinstance(first, Granted):
        assert decide("r", first.generation, CurrentOwner.SAME, asked) == Granted(first.generation, is_kept=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 6), st.booleans()), max_size=20))
def test_a_token_only_grows_and_no_two_owners_have_the_same(claims: list[tuple[str, int | None, bool]]) -> None:
    """Generations restart at 0, owners come and go; the token differs for each spell of ownership."""
    item, tokens = OwnershipItem(), {}
    for session_id, asked, is_released in claims:
        owner = (
            CurrentOwner.NONE
            if item.session_id is None
            else CurrentOwner.SAME
            if item.session_id == session_id
            else CurrentOwner.OTHER
        )
        verdict = decide("r", item.generation, owner, asked)
        if isinstance(verdict, Granted):
            after = owned_by(item, verdict, session_id)
            assert after.fencing_token == item.fencing_token + (0 if owner is CurrentOwner.SAME else 1)
            assert tokens.setdefault(after.fencing_token, session_id) == session_id
            item = after
        if is_released and item.session_id == session_id:
            item = released(item)
    assert OwnershipItem.from_value(item.to_value()) == item


def test_an_owner_has_a_resource_since_it_took_it() -> None:
    item = owned_by(OwnershipItem(), Granted(1), "a", now_ms=5)
    assert owned_by(item, Granted(1, is_kept=True), "a", now_ms=9) == item
    assert (item.since, owned_by(item, Granted(2), "b", now_ms=9).since, released(item).since) == (5, 9, None)
    assert OwnershipItem.from_value(item.to_value()) == item


def test_a_partition_s_token_is_its_epoch_and_outlives_its_owner() -> None:
    item = owned_by(OwnershipItem(3, 4, "old"), Granted(3), "new", token=9)
    assert item == OwnershipItem(3, 9, "new")
    assert released(item) == OwnershipItem(3, 9, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders/0", ("orders", 0)),
        ("a.b-c_D/9999", ("a.b-c_D", 9999)),
        ("orders/00", None),
        ("orders/01", None),
        ("orders/-1", None),
        ("orders/+1", None),
        ("orders/1.0", None),
        ("orders/٣", None),
        ("orders/1234567890", None),
        ("orders/", None),
        ("orders", None),
        ("/0", None),
        ("a/b/0", None),
        ("../0", None),
        ("or ders/0", None),
        ("orders/0\n", None),
        ("x" * 250 + "/0", None),
    ],
)
def test_a_resource_names_a_partition_only_in_one_form(name: str, expected: Any) -> None:
    assert partition_named(name) == expected


def test_no_two_ownerships_share_an_item() -> None:
    life = {"topic_id": "t", "topic": "orders", "partition": 0}
    resources = [
        Resource("orders/0", None),
        Resource("orders/0", "g"),
        Resource("g", None),
        Resource("g/orders/0", None),
        Resource("orders/0", None, **life),
        Resource("orders/0", "g", **life),
        Resource("orders/0", "own", **life),
        Resource("orders/0", None, **{**life, "topic_id": "u"}),
        Resource("orders/1", None, **{**life, "partition": 1}),
    ]
    found = [resource.key for resource in resources]
    assert len(set(found)) == len(found)
    others = {keys.head_item("t", 0), keys.producer_item("t", 0, 1), keys.aborted_item("t", 0, 1)}
    assert not others & set(found)
    assert [r.is_write_access for r in resources] == [False] * 4 + [True, False, False, True, True]


def test_ownerships_are_items_of_their_partition() -> None:
    assert keys.ownership_item("t", 3, "g").partition == keys.partition_items("t", 3)


LONG = "é" * 512
WRONG_FORMS: list[tuple[str, str | None, list[OwnTarget]]] = [
    ("resources", None, []),
    ("resources", None, [OwnTarget(str(n)) for n in range(33)]),
    ("resources[0].resource", None, [OwnTarget("")]),
    ("resources[1].resource", None, [OwnTarget("a"), OwnTarget(LONG + "x")]),
    ("resources[0].resource", None, [OwnTarget("\ud800")]),
    ("resources[2].resource", None, [OwnTarget("a"), OwnTarget("b"), OwnTarget("a", 3)]),
    ("resources[0].generation", None, [OwnTarget("a", -1)]),
    ("resources[1].generation", None, [OwnTarget("a", TOP), OwnTarget("b", TOP + 1)]),
    ("group", "", [OwnTarget("a")]),
    ("group", "x" * 250, [OwnTarget("a")]),
    ("group", "\ud800", [OwnTarget("a")]),
]


@pytest.mark.parametrize(("field", "group", "wanted"), WRONG_FORMS)
def test_a_claim_of_another_form_is_refused_with_its_field(
    field: str, group: str | None, wanted: list[OwnTarget]
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_wanted(group, wanted)
    assert caught.value.field == field
    if "generation" not in field:
        with pytest.raises(InvalidRequestError) as caught:
            check_released(group, [one.resource for one in wanted])
        assert caught.value.field == field.removesuffix(".resource")


def test_any_other_form_is_taken() -> None:
    check_wanted("g" * 249, [OwnTarget(str(n), TOP) for n in range(32)])
    check_wanted(None, [OwnTarget(LONG, 0), OwnTarget("\0"), OwnTarget("a b/c")])
    check_released("g", [LONG])
    check_resource(LONG)
