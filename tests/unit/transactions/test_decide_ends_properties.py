"""Histories of several transactional ids that end together, apart, twice and too late (I10, I26, I27)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import AlreadyCommittedError, FencelineError
from fenceline.model.transaction import (
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    OnceMark,
    ProducerPair,
    TransactionMember,
)
from fenceline.transactions.committed_version import OnceItem
from fenceline.transactions.decide import (
    Add,
    End,
    Extend,
    Init,
    JointEnd,
    Meet,
    Request,
    SeenTransactions,
    completed,
    decide,
    decide_ends,
)
from fenceline.transactions.item import TopicPartitions, TransactionItem

NAMES = ("a", "b", "c")
PLACE = TopicPartitions("id", "orders", (0,))
TIMEOUT_MS = 10


class History:
    """The items of three ids and of one application, written one decision after the other."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.seen = SeenTransactions(
            {name: TransactionItem(name, n, 0, "Empty", TIMEOUT_MS) for n, name in enumerate(NAMES)}
        )
        self.versions: list[int] = []  # of the application, as they were raised
        self.outcomes: dict[ProducerPair, bool] = {}  # of the markers, by their pair

    def put(self, item: TransactionItem) -> None:
        before = self.seen.items[item.transactional_id]
        if before.is_prepared:
            assert item == completed(before, self.now_ms).item  # I10
        if item.is_prepared and not before.is_prepared:
            assert item.pair not in self.outcomes
            self.outcomes[item.pair] = item.is_commit
        self.seen = replace(self.seen, items={**self.seen.items, item.transactional_id: item})

    def alone(self, name: str, request: Request) -> None:
        try:
            decision = decide(self.seen.items[name], request, self.now_ms)
        except FencelineError:
            return
        if decision.is_change:
            self.put(decision.item)

    def end(self, request: JointEnd) -> None:
        before = self.seen
        try:
            decision = decide_ends(before, request, self.now_ms)
        except FencelineError:
            return
        for one in decision.members:
            was = before.items[one.item.transactional_id]
            assert one.is_change == (was.state == ONGOING and decision.is_change)  # I26: all of them, or none
            if one.is_change:
                assert one.item.is_commit == request.is_commit
                self.put(one.item)
        if decision.once is not None:
            assert request.once is not None
            assert all(version < request.once.version for version in self.versions)  # I27
            self.versions.append(request.once.version)
            self.seen = replace(self.seen, once=replace(decision.once, version=1))
        self.check_repeat(request, is_under_way=any(one.is_change for one in decision.members))

    def check_repeat(self, request: JointEnd, *, is_under_way: bool) -> None:
        """Check that the same request again changes nothing: it is answered, or its version is committed."""
        refused: AlreadyCommittedError | None = None
        try:
            assert not decide_ends(self.seen, request, self.now_ms).is_change
        except AlreadyCommittedError as error:
            refused = error
        if refused is not None:
            assert not is_under_way  # else it is recognised by its members
            assert refused.version == self.versions[-1]


@st.composite
def pairs(draw: st.DrawFn, history: History, name: str) -> ProducerPair:
    item = history.seen.items[name]
    epoch = item.producer_epoch + draw(st.sampled_from([0] * 8 + [-1, -1, -2, 1]))
    return ProducerPair(item.producer_id, max(epoch, 0))


@st.composite
def joint_ends(draw: st.DrawFn, history: History) -> JointEnd:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    version = draw(st.none() | st.integers(0, 6))
    if not names and version is None:
        version = 0
    members = [TransactionMember(name, draw(pairs(history, name))) for name in names]
    once = None if version is None else OnceMark("app", version, draw(st.sampled_from([None, "x", "y"])))
    return JointEnd(members, draw(st.booleans()), once)


@given(st.data())
def test_all_of_a_request_is_decided_or_none_and_a_version_is_raised_once(data: st.DataObject) -> None:
    history = History()
    for _ in range(data.draw(st.integers(1, 30))):
        history.now_ms += data.draw(st.sampled_from([0, 0, 0, 1, TIMEOUT_MS + 1]))
        kind = data.draw(st.sampled_from(["joint"] * 4 + ["add"] * 4 + ["end", "init", "meet", "extend", "complete"]))
        if kind == "joint":
            history.end(data.draw(joint_ends(history)))
            continue
        name = data.draw(st.sampled_from(NAMES))
        item = history.seen.items[name]
        if kind == "complete":
            if item.is_prepared:
                history.put(completed(item, history.now_ms).item)
            continue
        pair = data.draw(pairs(history, name))
        made: dict[str, Request] = {
            "add": Add(pair, (PLACE,)),
            "end": End(pair, data.draw(st.booleans())),
            "init": Init(name, TIMEOUT_MS),
            "meet": Meet(),
            "extend": Extend(pair, 100),
        }
        history.alone(name, made[kind])


@given(st.data())
def test_a_lost_write_is_taken_for_carried_out_only_where_it_was(data: st.DataObject) -> None:
    """The request is judged again after any other request of the same version. It commits only what it has decided."""
    history = History()
    for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True)):
        history.alone(name, Add(history.seen.items[name].pair, (PLACE,)))
    note = data.draw(st.sampled_from([None, "x"]))
    request = replace(data.draw(joint_ends(history)), once=OnceMark("app", 3, note), is_commit=True)
    rival_once = OnceItem(OnceMark("app", data.draw(st.integers(2, 4)), data.draw(st.sampled_from([None, "x"])), 1), 9)
    seen = replace(history.seen, once=rival_once)
    try:
        decision = decide_ends(seen, request, history.now_ms, is_resumed=True)
    except FencelineError:
        return
    if not decision.is_change:
        states = {seen.items[one.transactional_id].state for one in request.members}
        assert states <= {"Empty", COMPLETE_COMMIT, PREPARE_COMMIT}  # none is still under way
        assert rival_once.mark.version == 3
        assert rival_once.mark.note == note
