"""The part of a partition's state that concerns regions: positions in other logs, snapshots, updates ("Regions").

Rule: these functions are pure. A partition's positions in other regions' logs are part of the fold, so the create that
adds replicated batches also moves the position, and nothing else does (I18). The loss of any other member of this state
costs only one snapshot.

Rule: the segment says which region sent a marker, and in which life of its topic. A marker whose body contradicts its
segment is ignored.

Not here: the markers that are due by this state; see ``regions.snapshots``. How the state is stored; see
``region_state_items``. The markers' values; see ``format.region_markers``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from fenceline import limits
from fenceline.format import control
from fenceline.format.region_markers import Positions, SnapshotMark, SnapshotRequest, SnapshotResponse
from fenceline.format.segment import Replicated

Counts: TypeAlias = Mapping[str, tuple[str, int]]  # by region: (topic id, an own number of its records)


@dataclass(frozen=True, slots=True)
class Origin:
    """The position up to which another region's log was replicated.

    Attributes:
        topic_id: The life of the source's topic in which the position counts (I20).
        next_offset: The source offset to read next.
        count: The own number of the last record that was replicated or passed.
        chain: The chain value of the source's segment that holds ``next_offset - 1``; "" if it is not known.
        start: Records of this life with numbers up to this one are not here, because this region came late, or skipped
            a gap (I17).
        former: The lives before this one, the latest last. Nothing of them is ever pulled again.
        passed: So many of the last numbers up to ``count`` have no record here, because this region came late, or
            skipped a gap.
    """

    topic_id: str
    next_offset: int
    count: int
    chain: str = ""
    start: int = 0
    former: tuple[str, ...] = ()
    passed: int = 0

    @property
    def taken(self) -> int:
        """Return the own number of the last record of this life that is here; 0 if there is none."""
        return self.count - self.passed


def moved(known: Origin | None, source: Replicated, brought: int) -> Origin:
    """Return the position after a segment with ``brought`` records of its region, with dense numbers."""
    # An older fenceline accepted counts from a peer that no head can hold. A log with such a count must still go on.
    count = min(source.count, limits.INT64_MAX)
    position = Origin(source.topic_id, source.next_offset, count, source.chain, count - brought)
    if not brought:
        position = replace(position, passed=count)
    if known is None:
        return position
    if known.topic_id == source.topic_id:
        passed = 0 if brought else count - known.taken
        return replace(position, start=known.start, former=known.former, passed=passed)
    return replace(position, former=(*known.former, known.topic_id)[-limits.ORIGIN_LIVES_MAX :])


def ends_life(known: Origin | None, topic_id: str) -> bool:
    """Return True if the life ``topic_id`` follows one of which records had been replicated."""
    return known is not None and known.topic_id != topic_id and known.count > 0


def skipped(known: Origin | None, topic_id: str, to_offset: int, count: int) -> Origin:
    """Return the position after a SKIP of ``count`` records."""
    if known is not None and known.topic_id == topic_id:
        count += known.count
    after = moved(known, Replicated(topic_id, to_offset, count), 0)
    return replace(after, start=after.count)


class SnapshotAnswer(NamedTuple):
    """One region's answer to a REQUEST: its position in its own log, and its counts of other regions there.

    Attributes:
        origins: Its count of each other region. No record with a number up to that count will come to the answering
            region any more.
        taken: The last number that it had of a region, where the region's count names no record there.
    """

    topic_id: str
    position: int
    origins: Counts
    taken: Counts = MappingProxyType({})

    @property
    def had(self) -> Counts:
        """Return the own number of the last record that the answering region had of each other one."""
        return {**self.origins, **self.taken}


class OpenSnapshotRequest(NamedTuple):
    """An own REQUEST that no SNAPSHOT has completed.

    Attributes:
        records: The data records below the REQUEST.
        origins: The last record that this region had of each other one at the REQUEST.
        local: The first offset at which this log has all that the answers had, except ``never_here``; None until then.
        starts: Each origin's ``start`` at ``local``, and the numbers of ``never_here``.
    """

    snapshot_id: str
    time: int
    records: int
    origins: Counts
    regions: tuple[str, ...]
    answers: Mapping[str, SnapshotAnswer] = MappingProxyType({})
    local: int | None = None
    starts: Counts = MappingProxyType({})

    def is_final(self, regions: Collection[str]) -> bool:
        """Return True if each answer had all records of third regions that this region had at its REQUEST.

        Then no further snapshot is needed for the records below the REQUEST.

        Args:
            regions: The topic's regions. Records of a region that was removed do not count, because those that an
                answer lacks will not come.
        """
        return all(
            has(answer.origins, origin, life, count)
            for region, answer in self.answers.items()
            for origin, (life, count) in self.origins.items()
            if origin != region and origin in regions
        )

    def is_young(self, now_ms: int) -> bool:
        """Return True if this REQUEST is not given up yet, should another REQUEST come now.

        A REQUEST whose time is as far in the future is given up, too, because its clock was wrong, and it would hold up
        the other REQUESTs until that time.
        """
        return abs(now_ms - self.time) < limits.SNAPSHOT_REQUEST_MS


class Unanswered(NamedTuple):
    """Another region's REQUEST that this one has not answered: its offset here, and the log's counts at that offset."""

    origin: str
    topic_id: str
    snapshot_id: str
    position: int
    origins: Counts
    taken: Counts = MappingProxyType({})  # the last records, where their number is below the count


class CompletedSnapshot(NamedTuple):
    """A snapshot: what lies below ``positions`` in the other regions lies below ``local`` here (I21)."""

    snapshot_id: str
    local: int
    positions: Positions
    starts: Counts
    is_final: bool
    time: int


class RegionState(NamedTuple):
    """All that a log says about regions, except its positions in other logs."""

    asked: tuple[OpenSnapshotRequest, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    snapshots: tuple[CompletedSnapshot, ...] = ()
    requested_at: int = 0  # ms, the time of the newest own REQUEST
    requested_records: int = 0  # the data records below that REQUEST
    covered: int = 0  # the data records below the REQUEST of the last final snapshot
    repeats: int = 0  # the snapshots since then that were not final
    update_next: int = 0  # the offset after the newest UPDATE of another region
    skipped: int = 0  # records that an operator gave up
    given: Mapping[str, int] = MappingProxyType({})  # by region, the highest position that a RESPONSE gave it
    given_from: int = 0  # ``given`` may lack the positions of REQUESTs below this, which an older version folded

    def has_given(self, region: str, position: int) -> bool:
        """Return True if a RESPONSE gave the region a position as high as this, or may have."""
        return position <= max(self.given.get(region, -1), self.given_from - 1)


NOTHING = RegionState()


class MarkerPosition(NamedTuple):
    """A marker's place in the log, and what the log has below it."""

    offset: int
    time: int  # ms, appended-at of its segment
    records: int
    origins: Mapping[str, Origin]
    region: str  # this one
    origin: str | None  # the region that sent it; None: this one
    origin_topic_id: str | None  # that region's


def fold(state: RegionState, marker_type: int, value: Mapping[str, Any], place: MarkerPosition) -> RegionState:
    """Fold a marker of a type that changes nothing else."""
    return _bounded(_folded(state, marker_type, value, place))


def _folded(state: RegionState, marker_type: int, value: Mapping[str, Any], place: MarkerPosition) -> RegionState:
    match marker_type:
        case control.SNAPSHOT_REQUEST:
            request = SnapshotRequest.from_value(value)
            if request is None:
                return state
            return _requested(state, request, place) if place.origin is None else _asked_by(state, request, place)
        case control.SNAPSHOT_RESPONSE:
            response = SnapshotResponse.from_value(value)
            return state if response is None else _answered(state, response, place)
        case control.SNAPSHOT if place.origin is None:
            mark = SnapshotMark.from_value(value)
            return state if mark is None else _completed(state, mark, place)
        case control.SUBSCRIPTION_UPDATE if place.origin is not None:
            return state._replace(update_next=place.offset + 1)
    return state


def _requested(state: RegionState, request: SnapshotRequest, place: MarkerPosition) -> RegionState:
    young = [asked for asked in state.asked if asked.is_young(place.time)]
    asked = OpenSnapshotRequest(request.snapshot_id, place.time, place.records, taken(place.origins), request.regions)
    return state._replace(
        asked=(*young, asked)[-limits.SNAPSHOTS_UNDER_WAY_MAX :],
        requested_at=place.time,
        requested_records=place.records,
    )


def _asked_by(state: RegionState, request: SnapshotRequest, place: MarkerPosition) -> RegionState:
    origin, topic_id = place.origin, place.origin_topic_id
    if origin is None or topic_id is None or request.topic_id != topic_id or place.region not in request.regions:
        return state
    others = [one for one in state.unanswered if one.origin != origin]
    same = [one for one in state.unanswered if one.origin == origin and one.topic_id == topic_id]
    origins = {region: known for region, known in place.origins.items() if known.passed}
    new = Unanswered(origin, topic_id, request.snapshot_id, place.offset, counts(place.origins), taken(origins))
    return state._replace(unanswered=(*others, *same[1 - limits.SNAPSHOTS_UNDER_WAY_MAX :], new))


def _answered(state: RegionState, response: SnapshotResponse, place: MarkerPosition) -> RegionState:
    if place.origin is None:
        question = response.to, response.snapshot_id
        left = tuple(one for one in state.unanswered if (one.origin, one.snapshot_id) != question)
        given = {**state.given, response.to: max(response.position, state.given.get(response.to, 0))}
        # Only for a region that asked, so that each region in ``given`` is in ``origins``, too.
        return state._replace(unanswered=left, given=given if len(left) < len(state.unanswered) else state.given)
    if response.to != place.region or response.topic_id != place.origin_topic_id:
        return state
    # Its records of this region lie below the REQUEST here.
    third = {origin: one for origin, one in response.origins.items() if origin != place.region}
    had = {origin: one for origin, one in response.taken.items() if origin in third}
    answer = SnapshotAnswer(response.topic_id, response.position, third, had)
    return state._replace(asked=tuple(_with(asked, response, place.origin, answer) for asked in state.asked))


def _with(
    asked: OpenSnapshotRequest, response: SnapshotResponse, region: str, answer: SnapshotAnswer
) -> OpenSnapshotRequest:
    is_awaited = asked.snapshot_id == response.snapshot_id and region in asked.regions
    if not is_awaited or region in asked.answers:  # the first answer counts; model: Snapshot, "the first answer counts"
        return asked
    return asked._replace(answers={**asked.answers, region: answer})


def _completed(state: RegionState, mark: SnapshotMark, place: MarkerPosition) -> RegionState:
    """Fold a SNAPSHOT, which completes its REQUEST, and replaces all older ones."""
    at = next((at for at, asked in enumerate(state.asked) if asked.snapshot_id == mark.snapshot_id), None)
    done = CompletedSnapshot(mark.snapshot_id, mark.local, mark.positions, mark.starts, mark.is_final, place.time)
    state = state._replace(snapshots=(*state.snapshots, done)[-limits.SNAPSHOTS_KEPT_MAX :])
    if at is None:
        return state
    if mark.is_final:
        state = state._replace(covered=max(state.covered, state.asked[at].records), repeats=0)
    else:
        state = state._replace(repeats=state.repeats + 1)
    return state._replace(asked=state.asked[at + 1 :])


def reached(state: RegionState, origins: Mapping[str, Origin], end: int) -> RegionState:
    """Return the state at a segment's end, which is the local offset of each snapshot whose answers are matched."""
    if all(asked.local is not None or len(asked.answers) < len(asked.regions) for asked in state.asked):
        return state
    here = counts(origins)
    # model: Snapshot, "from says what is missing"
    starts = {region: (origin.topic_id, origin.start) for region, origin in origins.items()}

    def matched(asked: OpenSnapshotRequest) -> OpenSnapshotRequest:
        absent = never_here(asked, here)
        is_matched = asked.local is None and _is_matched(asked, {**here, **absent})
        return asked._replace(local=end, starts={**starts, **absent}) if is_matched else asked

    return _bounded(state._replace(asked=tuple(map(matched, state.asked))))


def never_here(asked: OpenSnapshotRequest, here: Counts) -> Counts:
    """Return the third regions for which L does not wait, each with the last number that any answer had of it.

    They are regions of which no record is here, and which were not asked, because they may have been removed before
    this region came. No UPDATE of this region passes a record with a number up to the returned one (I22). L waits for a
    region of which the answers name two lives, because a number counts in one life.
    """
    named: dict[str, set[tuple[str, int]]] = {}
    for answer in asked.answers.values():
        for origin, (life, number) in answer.had.items():
            if number and origin not in asked.regions and not here.get(origin, ("", 0))[1]:
                named.setdefault(origin, set()).add((life, number))
    # model: Snapshot, "from says what never came"
    found = {origin: max(had) for origin, had in named.items() if len({life for life, _ in had}) == 1}
    return found if len({*here, *found}) <= limits.ORIGINS_MAX else {}  # so that a marker can name them all


def _is_matched(asked: OpenSnapshotRequest, known: Counts) -> bool:
    """Return True if each region has answered, and all that it had of third regions is known here, too (I21)."""
    # model: Snapshot, "wait for the counts"
    return all(
        region in asked.answers
        and all(has(known, origin, life, count) for origin, (life, count) in asked.answers[region].had.items())
        for region in asked.regions
    )


def has(known: Counts, origin: str, life: str, count: int) -> bool:
    """Return True if ``known`` has the records of ``origin`` up to ``count``; a count of 0 needs no entry."""
    known_life, known_count = known.get(origin, ("", -1))
    # model: Snapshot, "of the same life"
    return count == 0 or (known_life == life and known_count >= count)


def counts(origins: Mapping[str, Origin]) -> Counts:
    """Return the count of each other region. No record with a number up to the count will still come."""
    return {region: (origin.topic_id, origin.count) for region, origin in origins.items()}


def taken(origins: Mapping[str, Origin]) -> Counts:
    """Return the own number of each other region's last record in this log."""
    return {region: (origin.topic_id, origin.taken) for region, origin in origins.items()}


def _bounded(state: RegionState) -> RegionState:
    """Drop the oldest members, snapshots first, where a head would hold too much, which costs only a snapshot.

    Eight regions that keep the rules come to this only if all their names are long.
    """
    while _size(state) > limits.REGION_STATE_BYTES_MAX:
        if len(state.snapshots) > 1:
            state = state._replace(snapshots=state.snapshots[1:])
        elif state.unanswered:
            state = state._replace(unanswered=state.unanswered[1:])
        elif len(state.asked) > 1:
            state = state._replace(asked=state.asked[1:])
        else:
            break
    return state


# A change of these two raises ``FOLD_VERSION``, because they decide what is dropped.
_ENTRY_BYTES = 256
_PAIR_BYTES = 32  # beside the names


def _size(state: RegionState) -> int:
    """Return the size in which a head stores these tuples, at most."""
    entries = len(state.asked) + len(state.unanswered) + len(state.snapshots)
    size = _ENTRY_BYTES * entries + sum(_size_of(one.origins, one.taken) for one in state.unanswered)
    for asked in state.asked:
        answered = {region: (answer.topic_id, answer.position) for region, answer in asked.answers.items()}
        size += _PAIR_BYTES * len(asked.regions) + sum(map(len, asked.regions))
        size += _size_of(asked.origins, asked.starts, answered)
        size += sum(_size_of(answer.origins, answer.taken) for answer in asked.answers.values())
    return size + sum(_size_of(done.positions, done.starts) for done in state.snapshots)


def _size_of(*pairs: Counts) -> int:
    return sum(_PAIR_BYTES + len(region) + len(topic_id) for each in pairs for region, (topic_id, _) in each.items())
