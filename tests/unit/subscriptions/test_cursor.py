"""A cursor's commits in the order in which they were sent, whichever transaction ends first."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fenceline.read.offset_ranges import NOTHING, Acknowledged
from fenceline.subscriptions.items import CursorItem, PendingOffset, cursor_from_value, cursor_to_value

FRESH = CursorItem(is_set=False)
SOME = Acknowledged.of([(40, 41)])


@dataclass
class Model:
    """The commits that may take effect, in the order in which they were sent."""

    sent: list[tuple[int | None, int, int]] = field(default_factory=list)  # (producer or None, epoch, offset)
    in_force: list[tuple[int, int]] = field(default_factory=list)  # (order, offset)
    order: int = 0

    def send(self, producer: int, epoch: int, offset: int) -> None:
        self.order += 1
        self.sent = [one for one in self.sent if one[0] != producer]
        self.sent.append((producer, epoch, offset))
        self.orders[producer] = self.order

    orders: dict[int, int] = field(default_factory=dict)

    def commit(self, offset: int) -> None:
        self.order += 1
        self.in_force.append((self.order, offset))

    def end(self, producer: int, epoch: int, *, is_commit: bool) -> None:
        for one in self.sent:
            if one[0] == producer and one[1] < epoch:
                self.sent.remove(one)
                if is_commit:
                    self.in_force.append((self.orders[producer], one[2]))
                return

    @property
    def mark(self) -> int:
        return max(self.in_force)[1] if self.in_force else 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "commit", "end", "abort"]), st.integers(1, 3), st.integers(0, 3), st.integers(0, 4)
    ),
    max_size=14,
)


@given(STEPS)
def test_the_mark_is_that_of_the_commit_that_was_sent_last(steps: list[tuple[str, int, int, int]]) -> None:
    """Property (I15): `settled` never decreases, and of all commits in force the one that was sent last is shown."""
    cursor, model = FRESH, Model()
    for kind, producer, epoch, offset in steps:
        before = cursor
        if kind == "send":
            cursor = cursor.with_pending(producer, epoch, offset, "")
            model.send(producer, epoch, offset)
        elif kind == "commit":
            cursor = cursor.committed(offset)
            model.commit(offset)
        else:
            cursor = cursor.ended(producer, epoch, is_commit=kind == "end")
            model.end(producer, epoch, is_commit=kind == "end")
        cursor = cursor_from_value(cursor_to_value(cursor, []), [])
        assert cursor.mark == model.mark
        assert cursor.is_set == bool(model.in_force)
        assert {(p, one.producer_epoch, one.offset) for p, one in cursor.pending.items()} == set(model.sent)
        assert before.settled <= cursor.settled <= cursor.sent
        assert before.sent <= cursor.sent


def test_an_equal_commit_is_numbered_only_beside_a_pending_one() -> None:
    cursor = FRESH.committed(5, "note")
    assert cursor.committed(5, "note") is cursor
    assert cursor.committed(5).metadata == ""
    later = cursor.with_pending(7, 0, 3, "").committed(5, "note")
    assert (later.sent, later.settled) == (3, 3)
    assert later.ended(7, 1, is_commit=True).mark == 5


def test_an_equal_commit_sets_a_cursor_that_only_transactions_had_sent_to() -> None:
    cursor = FRESH.with_pending(7, 0, 3, "").ended(7, 1, is_commit=False)
    assert (cursor.mark, cursor.is_set, cursor.sent, cursor.settled) == (0, False, 1, 0)
    assert cursor.committed(0).is_set


def test_a_committed_offset_takes_effect_as_a_commit_does_and_an_aborted_one_not_at_all() -> None:
    cursor = CursorItem(2, SOME, "old", more={"later": 1})
    sent = cursor.with_pending(7, 3, 9, "new")
    assert (sent.mark, sent.acknowledged, sent.metadata) == (2, SOME, "old")
    done = sent.ended(7, 4, is_commit=True)
    assert done == CursorItem(9, NOTHING, "new", 1, 1, more={"later": 1})
    assert sent.ended(7, 4, is_commit=False) == CursorItem(2, SOME, "old", 1, 0, more={"later": 1})


def test_only_what_is_below_the_markers_epoch_ends() -> None:
    cursor = FRESH.with_pending(7, 3, 9, "").with_pending(8, 0, 4, "")
    for producer, epoch in ((7, 3), (7, 0), (9, 5)):
        assert cursor.ended(producer, epoch, is_commit=True) is cursor
    assert cursor.ended(7, 4, is_commit=True).pending == {8: PendingOffset(0, 2, 4, "")}
