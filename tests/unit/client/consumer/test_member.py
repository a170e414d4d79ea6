"""A member of a group from its client's side: each row of what a crash, a freeze or a lost answer leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from fenceline import errors
from fenceline.client.consumer.member import PATIENCE_MS, Beat, Member
from fenceline.client.consumer.places import Place
from fenceline.model.group import HeldPartition, HeldTopic, Membership, NamedPartitions

TIMEOUT_MS = 45_000


def member(*, static: bool = False) -> Member:
    ids = count(1)
    return Member(lambda: f"m{next(ids)}", 0, session_timeout_ms=TIMEOUT_MS, rebalance_timeout_ms=60_000, static=static)


def place(partition: int) -> Place:
    return Place("t", "id", partition)


def shown(
    member_id: str,
    epoch: int,
    partitions: Sequence[int],
    *,
    settled: bool = True,
    expires_at: int = 1,
    token: int = 1,
    since: int = 1,
) -> Membership:
    held = [HeldTopic("t", "id", [HeldPartition(n, since, token) for n in partitions])] if partitions else []
    return Membership(member_id, epoch, 5_000 if settled else 500, expires_at, held, settled)


def answer(one: Member, now_ms: int, epoch: int, partitions: Sequence[int], **more: object) -> Beat:
    """Send the next heartbeat, and answer it."""
    beat = one.beat(now_ms)
    one.answered(beat, shown(one.member_id, epoch, partitions, **more), now_ms, now_ms)  # type: ignore[arg-type]
    return beat


def take_all(one: Member, now_ms: int) -> None:
    """Be a program that follows each change at once."""
    changes = one.changes(now_ms)
    one.places.told(changes.lost)
    one.stopped(changes.revoked, now_ms)
    one.places.begun(changes.assigned)


def works(one: Member) -> list[int]:
    return [each.partition for each in sorted(one.places.working)]


def joined(*partitions: int, static: bool = False) -> Member:
    """Return a member of epoch 1 that works on partitions since 0 ms."""
    one = member(static=static)
    answer(one, 0, 1, partitions)
    take_all(one, 0)
    return one


def test_a_join_says_nothing_of_partitions_and_the_answer_is_begun_when_the_program_is_told() -> None:
    one = member()

    beat = answer(one, 0, 1, [0, 1])
    changes = one.changes(0)

    assert beat == Beat("m1", 0, None, TIMEOUT_MS // 6)
    assert [each.partition for each in changes.assigned] == [0, 1]
    assert works(one) == []
    assert one.places.begun(changes.assigned) == [place(0), place(1)]
    assert works(one) == [0, 1]
    assert one.is_complete
    assert one.due_ms == 1_000, "others that start with it wait for its next heartbeat"


def test_a_member_asks_soon_in_its_first_seconds_and_then_as_the_answer_says() -> None:
    one = member()

    answer(one, 0, 1, [0])
    answer(one, 2_999, 1, [0])
    assert one.due_ms == 3_999
    answer(one, 3_999, 1, [0])
    assert one.due_ms == 8_999


def test_what_is_asked_for_is_reported_as_owned_until_the_program_has_stopped() -> None:
    one = joined(0, 1)

    answer(one, 5_000, 2, [0], settled=False)
    meanwhile = one.beat(5_500)
    one.answered(meanwhile, shown("m1", 2, [0], settled=False), 5_500, 5_500)
    revoked = one.changes(5_600).revoked
    one.stopped(revoked, 5_600)

    assert meanwhile.owned == [NamedPartitions("t", "id", [0, 1])]
    assert revoked == [place(1)]
    assert one.due_ms == 5_600  # at once
    assert one.beat(5_600) == Beat("m1", 2, [NamedPartitions("t", "id", [0])], TIMEOUT_MS // 6)


def test_a_settled_member_reports_nothing() -> None:
    assert joined(0).beat(5_000).owned is None


def test_a_join_whose_answer_was_lost_is_sent_again_under_the_same_id() -> None:
    one = member()

    beat = one.beat(0)
    one.unanswered(beat, 100)

    assert one.due_ms == 100 + TIMEOUT_MS // 20
    assert one.beat(one.due_ms) == beat


def test_after_a_lost_answer_the_next_heartbeat_is_at_the_epoch_before_and_reports_all() -> None:
    one = joined(0, 1)

    one.unanswered(one.beat(5_000), 8_000)
    again = one.beat(one.due_ms)
    one.answered(again, shown("m1", 2, [0], settled=False), 10_000, 10_000)

    assert (again.member_epoch, again.owned) == (1, [NamedPartitions("t", "id", [0, 1])])
    assert one.epoch == 2
    assert one.changes(10_000).revoked == [place(1)]
    assert one.beat(10_500).owned == [NamedPartitions("t", "id", [0, 1])]  # it has not stopped yet


def test_an_answer_that_comes_late_to_a_life_that_is_over_changes_nothing() -> None:
    one = joined(0)
    late = one.beat(5_000)

    one.lapse(TIMEOUT_MS)
    one.answered(late, shown("m1", 2, [0, 1]), 5_000, TIMEOUT_MS)
    one.refused(late, errors.NotAuthorizedError("late"), TIMEOUT_MS)
    one.unanswered(late, TIMEOUT_MS)
    one.contended(late, TIMEOUT_MS, 0.5)

    assert (one.member_id, one.epoch, one.failure) == ("m2", 0, None)
    assert one.due_ms == TIMEOUT_MS
    assert one.changes(TIMEOUT_MS).assigned == []


def test_an_unknown_member_has_lost_all_and_joins_under_a_fresh_id() -> None:
    one = joined(0, 1)

    one.refused(one.beat(5_000), errors.UnknownMemberIdError("gone"), 5_000)
    lost = one.changes(5_000).lost

    assert lost == [place(0), place(1)]
    assert works(one) == []
    assert (one.member_id, one.epoch, one.due_ms) == ("m2", 0, 5_000)
    assert one.beat(5_000).owned is None


def test_a_fenced_member_has_lost_all_and_joins_again_under_its_own_id() -> None:
    one = joined(0)

    one.refused(one.beat(5_000), errors.FencedMemberEpochError("two late joins"), 5_000)

    assert one.changes(5_000).lost == [place(0)]
    assert (one.member_id, one.epoch) == ("m1", 0)


def test_what_was_lost_is_begun_again_only_after_the_program_was_told() -> None:
    one = joined(0)
    one.refused(one.beat(5_000), errors.FencedMemberEpochError("late joins"), 5_000)

    answer(one, 5_001, 4, [0], since=4)
    before = one.changes(5_001)
    one.places.told(before.lost)

    assert (before.lost, before.assigned) == ([place(0)], [])
    assert one.changes(5_001).assigned == [place(0)]


def test_a_partition_that_another_had_in_between_is_lost_and_then_assigned() -> None:
    one = joined(0, 1)

    answer(one, 5_000, 7, [0, 1], token=6)

    assert one.changes(5_000).lost == [place(0), place(1)]
    assert works(one) == []


def test_a_join_again_keeps_what_is_worked_on_with_its_later_epoch() -> None:
    one = joined(0)

    answer(one, 5_000, 3, [0], since=3)

    assert one.changes(5_000) == type(one.changes(5_000))([], [], [])
    assert one.places.working[place(0)].since == 3


def test_what_is_given_back_before_the_program_stopped_goes_on() -> None:
    one = joined(0)

    answer(one, 5_000, 2, [], settled=False)
    answer(one, 5_500, 3, [0])

    changes = one.changes(5_500)
    assert (changes.lost, changes.revoked, changes.assigned) == ([], [], [])
    assert works(one) == [0]


def test_what_is_given_back_after_the_program_stopped_is_assigned_again() -> None:
    one = joined(0)
    answer(one, 5_000, 2, [], settled=False)
    take_all(one, 5_100)

    answer(one, 5_500, 3, [0])

    assert one.changes(5_500).assigned == [place(0)]


def test_a_partition_that_is_gone_again_before_the_program_took_it_is_not_begun() -> None:
    one = member()
    answer(one, 0, 1, [0])
    assigned = one.changes(0).assigned

    answer(one, 500, 2, [], settled=False)

    assert one.places.begun(assigned) == []
    assert one.beat(1_000).owned == []


@pytest.mark.parametrize(("renewed", "until_ms"), [(True, 5_000 + TIMEOUT_MS), (False, TIMEOUT_MS)])
def test_a_lease_counts_from_before_the_heartbeat_that_renewed_it(renewed: bool, until_ms: int) -> None:
    one = joined(0)

    answer(one, 5_000, 1, [0], expires_at=2 if renewed else 1)

    assert one.lease_until_ms == until_ms


def test_an_answer_that_renewed_nothing_leaves_two_thirds_of_the_lease() -> None:
    one = joined(0)
    answer(one, 20_000, 1, [0])
    assert one.lease_until_ms == 20_000 + TIMEOUT_MS * 2 // 3


def test_after_a_lost_answer_a_renewal_may_be_that_of_the_lost_one() -> None:
    one = joined(0)
    one.unanswered(one.beat(20_000), 20_000)

    answer(one, 25_000, 1, [0], expires_at=2)

    assert one.lease_until_ms == 25_000 + TIMEOUT_MS * 2 // 3


@pytest.mark.parametrize("look", ["changes", "beat", "unanswered"])
def test_a_member_whose_lease_is_over_by_its_own_clock_stops_and_begins_again(look: str) -> None:
    one = joined(0)
    beat = one.beat(TIMEOUT_MS - 1)
    assert works(one) == [0]

    match look:
        case "changes":
            assert one.changes(TIMEOUT_MS).lost == [place(0)]
        case "beat":
            assert one.beat(TIMEOUT_MS) == Beat("m2", 0, None, TIMEOUT_MS // 6)
        case _:
            one.unanswered(beat, TIMEOUT_MS)

    assert works(one) == []
    assert one.places.lost == [place(0)]
    one.lapse(10 * TIMEOUT_MS)
    assert one.member_id == "m2", "a member without a lease waits for its join"


def test_no_try_outlasts_the_lease() -> None:
    one = joined(0)
    assert one.beat(TIMEOUT_MS - 10).timeout_ms == 10


def test_a_contended_heartbeat_is_sent_again_soon_and_is_no_lost_answer() -> None:
    one = joined(0)

    one.contended(one.beat(5_000), 5_000, 0.5)

    assert 5_000 < one.due_ms < 5_300
    assert one.beat(one.due_ms).owned is None


def test_a_static_member_waits_for_its_instance_id_as_long_as_a_lease_and_no_longer() -> None:
    one = member(static=True)
    error = errors.UnreleasedInstanceIdError("taken", instance_id="w")

    for now_ms in (0, 1_000, TIMEOUT_MS + PATIENCE_MS):
        one.refused(one.beat(now_ms), error, now_ms)
        assert one.failure is None
        assert one.due_ms == now_ms + 1_000
    one.refused(one.beat(TIMEOUT_MS + PATIENCE_MS + 1), error, TIMEOUT_MS + PATIENCE_MS + 1)

    assert one.failure is error


def test_another_refusal_ends_the_membership_and_takes_all() -> None:
    one = joined(0)
    error = errors.NotAuthorizedError("no longer")

    one.refused(one.beat(5_000), error, 5_000)

    assert one.failure is error
    assert one.changes(5_000).lost == [place(0)]


def test_a_program_that_keeps_what_it_was_asked_for_is_overdue_after_its_rebalance_timeout() -> None:
    one = joined(0, 1)
    answer(one, 5_000, 2, [0], settled=False)
    answer(one, 5_500, 2, [0], settled=False)

    assert one.overdue_ms(65_000) == 0
    assert one.overdue_ms(65_001) == 1
    one.stopped([place(1)], 65_001)
    assert one.overdue_ms(99_000) == 0


def test_a_member_with_nothing_to_do_in_a_settled_group_is_complete() -> None:
    one = member()
    assert not one.is_complete
    answer(one, 0, 1, [])
    assert one.is_complete
