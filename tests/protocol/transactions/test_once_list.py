"""The list of versions that applications have committed."""

from __future__ import annotations

from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads
from fenceline.model.transaction import OnceMark
from fenceline.transactions.committed_version import OnceItem, list_marks
from tests.support.service import Service, serve


def put(context: Context, app_id: str, version: int, principal: str = "") -> OnceMark:
    mark = OnceMark(app_id, version, f"run of {app_id}", 7)
    context.items.write([OnceItem(mark, principal=principal).put(context.runtime)])
    return mark


@given(
    st.sets(st.text(st.sampled_from("ab\u00e9\uff5e\U0001f600"), min_size=1, max_size=4), max_size=60),
    st.integers(1, 20),
    st.sampled_from([1, 100, 10_000]),
)
def test_pages_have_every_application_once_in_byte_order(ids: set[str], limit: int, items_max: int) -> None:
    with closing(serve()) as service:
        context = service.log.context
        marks = [put(context, one, number) for number, one in enumerate(sorted(ids, key=str.encode))]
        found: list[OnceMark] = []
        after: str | None = ""
        while after is not None:
            page = list_marks(context, start_after=after, limit=limit, reads=Reads(items_max=items_max))
            found += page.versions
            assert len(page.versions) <= limit
            after = (page.go_on_after or page.versions[-1].app_id) if page.has_more else None
        assert found == marks


def test_applications_of_other_principals_are_left_out(service: Service) -> None:
    context = service.log.context
    plain, mine = put(context, "a", 1), put(context, "b", 2, "me")
    other = put(context, "c", 3, "you")
    assert list_marks(context, start_after="", limit=9, principal="me").versions == [plain, mine]
    assert list_marks(context, start_after="", limit=9).versions == [plain, mine, other]
    assert list_marks(context, start_after="é" * 4_000, limit=9).versions == []
