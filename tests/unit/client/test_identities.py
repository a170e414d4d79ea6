"""What a subscriber of several regions remembers: sets of identities, and what one region has shown."""

from hypothesis import given
from hypothesis import strategies as st

from fenceline.client import identities
from fenceline.client.identities import Identities, RecordOrigin, Shown
from fenceline.model.results import ReadRecord

A1, A2 = RecordOrigin("a", "a1"), RecordOrigin("a", "a2")


def record(origin, number, offset=0):
    return ReadRecord(offset, 0, None, None, [], -1, origin.region, origin.topic_id, number)


@given(st.lists(st.tuples(st.sampled_from([A1, A2]), st.integers(0, 40), st.integers(1, 6))))
def test_a_set_holds_exactly_what_was_added(added):
    found, expected = Identities(), set()
    for origin, start, count in added:
        found.add(origin, start, count)
        expected |= {(origin, number) for number in range(start, start + count)}

    for origin in (A1, A2):
        assert {n for n in range(60) if record(origin, n) in found} == {n for o, n in expected if o == origin}


def test_a_record_without_an_identity_is_in_no_set():
    found = Identities()
    found.add(A1, 0, 9)
    assert ReadRecord(0, 0, None, None, [], -1, "a") not in found


def test_beyond_the_bound_the_lowest_numbers_of_the_largest_origin_are_forgotten(monkeypatch):
    monkeypatch.setattr(identities, "RANGES_MAX", 4)
    found = Identities()
    found.add(A2, 0)
    for number in range(0, 20, 2):
        found.add(A1, number)

    assert [n for n in range(30) if record(A1, n) in found] == [14, 16, 18]
    assert record(A2, 0) in found
    found.add(A1, 14, 5)  # joins what is there: the bound counts ranges
    found.add(RecordOrigin("b", "b1"), 1)
    assert [n for n in range(30) if record(A1, n) in found] == [14, 15, 16, 17, 18]


@given(
    st.lists(st.tuples(st.sampled_from([A1, A2]), st.integers(0, 2), st.integers(0, 2)), max_size=20),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_shown_records_below_an_offset_are_taken_once_and_in_order(steps, ends):
    """Between two records there may be markers (offsets that are left out) and aborted records (numbers, too)."""
    shown, expected, offset, numbers = Shown(), [], 0, {A1: 0, A2: 0}
    for origin, gap, aborted in steps:
        offset += 1 + gap
        numbers[origin] += 1 + aborted
        shown.add(record(origin, numbers[origin], offset))
        expected.append((offset, origin, numbers[origin]))

    taken = []
    for end in [*sorted(ends), 1_000]:
        some = [(one, first + n) for one, first, count in shown.dequeue(end) for n in range(count)]
        assert some == [(one, number) for at, one, number in expected if at < end][len(taken) :]
        taken += some
    assert len(taken) == len(expected)


def test_shown_records_are_remembered_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(identities, "RUNS_MAX", 2)
    shown = Shown()
    for offset, number in ((0, 1), (1, 2), (3, 3), (5, 4)):
        shown.add(record(A1, number, offset))

    assert list(shown.dequeue(9)) == [(A1, 3, 1), (A1, 4, 1)]
