"""The lists of live sessions and of owned locks: whole over all pages, and only a look."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.access.ownership.lock_list import list_locks
from fenceline.access.resources import OwnershipItem
from fenceline.access.session_item import CLOSED, SEVERED, SessionItem
from fenceline.access.session_list import list_sessions
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads
from fenceline.model.access import LiveSession, Ownership, SessionPage
from fenceline.model.requests import ClaimRequest, OwnTarget
from fenceline.ports import Put
from fenceline.service.access import Access
from tests.support.service import TOPIC, Service, append, serve

ME, YOU = "me", "you"


def put_session(context: Context, session_id: str, principal: str = "", state: str = "live") -> None:
    now_ms = context.runtime.now_ms()
    item = SessionItem(session_id, principal, 30_000, now_ms + 30_000, now_ms, state)
    context.items.write([item.put(context.runtime)])


def put_lock(context: Context, resource: str, session_id: str | None, group: str | None = None) -> None:
    context.items.write([Put(keys.lock_item(group, resource), OwnershipItem(2, 1, session_id).to_value(), 1, None)])


def all_sessions(context: Context, limit: int, principal: str = "", items_max: int = 10_000) -> list[SessionPage]:
    pages, after = [], ""
    while True:
        reads = Reads(items_max=items_max)
        page = list_sessions(context, start_after=after, limit=limit, principal=principal, reads=reads)
        pages.append(page)
        if not page.has_more:
            assert page.go_on_after is None
            return pages
        after = page.go_on_after or page.sessions[-1].session_id
        assert len(pages) < 200, "a list without an end"


def make(access: Access, name: str | None = None, principal: str = "") -> str:
    return access.create_session(client_name=name, principal=principal).session_id


# Sessions


ID = st.text("0123456789abcdef", min_size=32, max_size=32)
ALIKE = st.sampled_from(["ab12cd34" + digit * 24 for digit in "09f"])


@given(
    st.dictionaries(ID | ALIKE, st.tuples(st.sampled_from([ME, YOU]), st.booleans()), max_size=40),
    st.integers(1, 12),
    st.sampled_from([1, 30, 10_000]),
)
def test_pages_have_each_live_session_once_by_id(made: dict[str, tuple[str, bool]], limit: int, items_max: int) -> None:
    """Property: also where the ids of others begin alike, of which a page shows only the beginning."""
    with closing(serve()) as service:
        context = service.log.context
        for session_id, (principal, is_live) in made.items():
            put_session(context, session_id, principal, "live" if is_live else CLOSED)
        pages = all_sessions(context, limit, ME, items_max)
        assert all(page.sessions or page.go_on_after for page in pages[:-1])
        assert pages[-1].sessions or len(pages) == 1 or pages[-2].go_on_after
        shown = [one.session_id for page in pages for one in page.sessions]
        live = sorted((one, who) for one, (who, is_live) in made.items() if is_live)
        assert shown == [one if who == ME else one[:8] for one, who in live]


def test_a_page_is_longer_only_where_ids_begin_alike(service: Service) -> None:
    context = service.log.context
    for session_id in ("1" * 32, "2" * 8 + "a" * 24, "2" * 8 + "b" * 24, "3" * 32):
        put_session(context, session_id, YOU)
    assert [len(page.sessions) for page in all_sessions(context, 1)] == [1, 2, 1]
    assert [len(page.sessions) for page in all_sessions(context, 2)] == [3, 1]
    assert [len(page.sessions) for page in all_sessions(context, 4)] == [4]


def test_only_live_sessions_are_listed(service: Service) -> None:
    context, access = service.log.context, service.log.access
    lapses = make(access)
    service.runtime.advance(20_000)
    lives, closes = make(access, "host-1"), make(access)
    access.close_session(closes)
    put_session(context, "f" * 32, state=SEVERED)
    service.runtime.advance(10_000 + limits.LEASE_GRACE_MS + 1)
    assert lapses
    (page,) = all_sessions(context, 10)
    state = access.session(lives)
    assert page.sessions == [LiveSession(lives, "host-1", state.since, state.expires_at, 0)]


def test_a_list_counts_what_a_session_holds(service: Service) -> None:
    """Property: it is as many as the session itself shows, which looks at the items of all of it."""
    access = service.log.access
    service.log.topics.alter(TOPIC, partitions=4)
    first, second = make(access, "a"), make(access, "b")

    def holds() -> dict[str, int]:
        (page,) = all_sessions(service.log.context, 10)
        counted = {one.session_id: one.holds for one in page.sessions}
        assert counted == {one: len(access.session(one).holds) for one in counted}
        return counted

    access.claim(TOPIC, ClaimRequest("Exclusive", [0, 1], "p", first))
    access.own(first, [OwnTarget("nightly"), OwnTarget(f"{TOPIC}/2")])
    access.own(first, [OwnTarget(f"{TOPIC}/2"), OwnTarget("nightly")], group="billing")
    assert holds() == {first: 6, second: 0}
    access.claim(TOPIC, ClaimRequest("ExclusiveWithFencing", [1], "q", second))
    assert holds() == {first: 5, second: 1}
    access.release(first, ["nightly"], group="billing")
    access.close_producer(TOPIC, "p", first)
    assert holds() == {first: 3, second: 1}
    access.own(second, [OwnTarget("nightly", 9)])  # which severs the first one
    assert holds() == {second: 2}


def test_a_page_ends_early_where_its_sessions_hold_very_much(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LISTED_ITEMS_MAX", 3)
    for digit in "123":
        put_session(service.log.context, digit * 32)
        service.log.access.own(digit * 32, [OwnTarget("a"), OwnTarget("b")], group=f"g-{digit}")
    pages = all_sessions(service.log.context, 10)
    assert [[one.holds for one in page.sessions] for page in pages] == [[2, 2], [2]]


def test_a_list_of_sessions_writes_nothing_and_asks_each_shard_once(service: Service) -> None:
    access = service.log.access
    for _ in range(10):
        make(access)
    before = service.count()
    assert len(access.sessions().sessions) == 10
    after = service.count()
    assert after["items.query"] - before["items.query"] == len(keys.SESSION_SHARDS)
    assert {name for name in after if after[name] != before[name]} == {"items.query"}


# Locks


def locks(context: Context, group: str | None = None, limit: int = 100, items_max: int = 10_000) -> list[Ownership]:
    """Return the locks of all pages."""
    found: list[Ownership] = []
    after = ""
    for _ in range(200):
        reads = Reads(items_max=items_max)
        page = list_locks(context, group=group, start_after=after, limit=limit, principal=ME, reads=reads)
        assert len(page.locks) <= limit
        found += page.locks
        if not page.has_more:
            return found
        after = page.go_on_after or page.locks[-1].resource
    raise AssertionError("a list without an end")


@given(
    st.dictionaries(
        st.text(st.sampled_from("a/é～😀\x00"), min_size=1, max_size=5),
        st.sampled_from([ME, YOU, None, "gone"]),
        max_size=40,
    ),
    st.integers(1, 12),
    st.sampled_from([1, 20, 10_000]),
)
def test_pages_have_each_owned_lock_once_by_name(made: dict[str, str | None], limit: int, items_max: int) -> None:
    with closing(serve()) as service:
        context = service.log.context
        ids: dict[str | None, str | None] = {None: None, "gone": "c" * 32, ME: "a" * 32, YOU: "b" * 32}
        for name in (ME, YOU):
            put_session(context, str(ids[name]), name)
        for resource, owner in made.items():
            put_lock(context, resource, ids[owner])
        found = locks(context, limit=limit, items_max=items_max)
        wanted = sorted((one for one, owner in made.items() if owner in (ME, YOU)), key=str.encode)
        assert [one.resource for one in found] == wanted
        shown = {ME: "a" * 32, YOU: "b" * 8}
        assert [one.session_id for one in found] == [shown[str(made[one])] for one in wanted]


def test_a_lock_is_listed_as_it_is_shown_by_its_name(service: Service) -> None:
    access = service.log.access
    append(service.log, "0")
    owner = make(access, "cron-2:88")
    access.own(owner, [OwnTarget("nightly", 4), OwnTarget("hourly"), OwnTarget(f"{TOPIC}/0"), OwnTarget("none/0")])
    access.own(owner, [OwnTarget("nightly"), OwnTarget(f"{TOPIC}/0")], group="g")
    page = access.locks()
    assert [one.resource for one in page.locks] == ["hourly", "nightly", "none/0"]  # there is no topic none
    assert page.locks == [access.ownership(one.resource) for one in page.locks]
    assert page.locks[1].client_name == "cron-2:88"
    assert access.locks(group="g").locks == [access.ownership("nightly", group="g")]
    assert access.locks(group="another").locks == []
    access.release(owner, ["hourly"])
    assert [one.resource for one in access.locks().locks] == ["nightly", "none/0"]
    service.runtime.advance(limits.LEASE_MS_DEFAULT + limits.LEASE_GRACE_MS + 1)
    assert access.locks().locks == []


def test_a_list_of_locks_reads_a_bounded_number_and_says_where_to_go_on(service: Service) -> None:
    """Whatever is owned of them: a lock that nothing owns keeps its item, for its generation and token."""
    context = service.log.context
    put_session(context, "a" * 32, ME)
    for n in range(60):
        put_lock(context, f"free-{n:02d}", None)
    put_lock(context, "zz", "a" * 32)
    page = list_locks(context, group=None, start_after="", limit=1, principal=ME, reads=Reads(items_max=1))
    assert (page.locks, page.has_more) == ([], True)
    assert page.go_on_after is not None
    assert [one.resource for one in locks(context, limit=1, items_max=1)] == ["zz"]


@pytest.mark.parametrize(("group", "start_after"), [("", ""), ("g" * 250, ""), (None, "é" * 513)])
def test_a_list_of_locks_refuses_names_that_nothing_can_have(
    service: Service, group: str | None, start_after: str
) -> None:
    with pytest.raises(InvalidRequestError):
        service.log.access.locks(group=group, start_after=start_after)
