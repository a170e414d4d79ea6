"""The bounds at which each model is checked, and the invariant that must fall where one of its guards is switched off.

Bounds are constants of a model. A constant that is not named here has the value of the model's `.cfg`, which is CI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Bounds = Mapping[str, str]


@dataclass(frozen=True)
class Guard:
    """A guard that can be switched off, by the name it has in the set `Guards` of its model."""

    falls: str = ""  # without it: an invariant by name, or what `wrong` says; nothing if it is never seen to matter
    bounds: Bounds = field(default_factory=dict)  # those at which this is seen
    why: str = ""  # why a guard stays that is never seen to matter


@dataclass(frozen=True)
class Fault:
    """A rule that is changed in a copy of the model, to see that the model would find it."""

    name: str
    old: str  # a text that the model has once
    new: str
    falls: str
    bounds: Bounds = field(default_factory=dict)


@dataclass(frozen=True)
class Deep:
    """A run that takes minutes: all states of larger bounds, or random histories of bounds that are larger still."""

    bounds: Bounds
    histories: int = 0  # how many random ones; 0: every state
    depth: int = 100  # steps of a random history, at most


@dataclass(frozen=True)
class Model:
    """All that is checked of one model."""

    guards: Mapping[str, Guard]
    faults: tuple[Fault, ...]
    runs: Mapping[str, Bounds] = field(default_factory=dict)  # beside the one of the .cfg, by what is different in them
    deep: Mapping[str, Deep] = field(default_factory=dict)


SAME_SIZE = {"Long": "{}"}

APPEND = Model(
    guards={
        "create if absent": Guard("I1_NeverOverwritten"),
        "judge again": Guard("I2_I3_JudgedAtItsOffset"),
        "judge while young": Guard("I2_I3_JudgedAtItsOffset"),
        "drop an old state": Guard("I5_HeadIsTrue"),
        "look after create": Guard("I7: acknowledged, but not in the log"),
        "look is young at create": Guard("I7: acknowledged, but not in the log"),
        "next key is absent": Guard("I4: not the end"),
        "same state at answer": Guard("I4: not the end"),
        "look is young at answer": Guard("I4: not the end"),
        "log start at answer": Guard(
            why="a second line: a state that was taken from a young head is never below the log start of that head"
        ),
        "corrupt while young": Guard("I4: answered CORRUPT_LOG", SAME_SIZE),
        "save while young": Guard("I5_HeadIsTrue"),
        "checkpoint first": Guard("I5_LogStart"),
        "grace": Guard("I5_HeadIsTrue"),
        "grace is longer": Guard("I5_HeadIsTrue"),
    },
    faults=(
        Fault(
            "the sweeper deletes the segment that holds the log start",
            old="await key + Size(store[key].batch) <= IF",
            new="await key < IF",
            falls="I6_KeptIsThere",
        ),
    ),
    deep={
        "three batches": Deep({"Batches": "{b1, b2, b3}"}),
        "two processes in full": Deep({"Processes": "{p1, p2}", **SAME_SIZE}),
    },
)

UNSHARED = {"Sharers": "{}", "LastEpoch": "1"}

ACCESS = Model(
    guards={
        "the marker's epoch is above the state's": Guard("I8_EpochsNeverFall", UNSHARED),
        "grant only after the marker": Guard("Granted", UNSHARED),
        "grant only what is still reserved": Guard("Granted", UNSHARED),
        "grant on the session's version": Guard("SeveredThenAnswered", UNSHARED),
        "grant all or none": Guard("AllOrNone", {**UNSHARED, "Partitions": "{p1, p2}"}),
        "an epoch is reserved once": Guard("EndedIsFinal", UNSHARED),
        "a reservation is no grant": Guard("OnlyWhatWasGranted", UNSHARED),
        "write the end before acting on it": Guard("EndedIsFinal", UNSHARED),
        "an end counts for its own session": Guard("OnlyAfterAnEnd", UNSHARED),
        "a reconnection writes what it read": Guard("EndedIsFinal", UNSHARED),
        "the marker is in the records' segment": Guard("SingleWriter", UNSHARED),
        "append only while the state names the grant": Guard("SingleWriter", UNSHARED),
        "the mode of the grant counts": Guard("SingleWriter", UNSHARED),
        "create at the judged offset": Guard("SingleWriter", UNSHARED),
        "look at the log after the items": Guard("SeveredThenAnswered"),
        "fences before the answer": Guard("SeveredThenAnswered", UNSHARED),
        "the list keeps closed and ended grants": Guard("SeveredThenAnswered", UNSHARED),
        "a shared grant's fence raises the epoch": Guard("SeveredThenAnswered"),
        "a fence comes before its marker, too": Guard(
            bounds=UNSHARED, why="a second line: what is fenced was granted, so its marker is in the log already"
        ),
    },
    faults=(
        Fault(
            "a fence is appended whatever the log says by then",
            old="IF State(fence.at) = Marker(s, fence.epoch)",
            new="IF TRUE",
            falls="I8_EpochsNeverFall",
            bounds=UNSHARED,
        ),
    ),
    runs={
        "two epochs, no session shares": UNSHARED,
        "two partitions": {"Sharers": "{}", "Partitions": "{p1, p2}"},
    },
    deep={
        "two epochs, one session shares": Deep({"Sharers": "{s1}", "LastEpoch": "1"}),
        "three epochs, no session shares": Deep({"Sharers": "{}", "LastEpoch": "2"}),
        "three sessions, three epochs": Deep({"Sharers": "{}", "LastEpoch": "2", "Sessions": "{s1, s2, s3}"}),
        "two partitions, all of it": Deep(
            {"LastEpoch": "2", "Sessions": "{s1, s2, s3}", "Sharers": "{s1, s2, s3}", "Partitions": "{p1, p2}"},
            histories=5_000,
        ),
    },
)

TWO_PLACES = {"Size": "2"}
TWICE, NOT_WRITTEN = "I16_ListedOnce", "I16_NotWrittenIsListedNowhere"

COMBINING = Model(
    guards={
        "bound only grows": Guard(TWICE, TWO_PLACES),
        "leave only what was read": Guard(TWICE, TWO_PLACES),
        "done keeps what is there": Guard(TWICE, TWO_PLACES),
        "done is not bound again": Guard(TWICE, TWO_PLACES),
        "all offers were read": Guard(TWICE, TWO_PLACES),
        "round before offers": Guard(TWICE, TWO_PLACES),
        "round on its version": Guard(NOT_WRITTEN, TWO_PLACES),
        "a round never moves back": Guard(NOT_WRITTEN, TWO_PLACES),
        "lost below the log start": Guard(TWICE, TWO_PLACES),
        "list only what is bound": Guard(NOT_WRITTEN, TWO_PLACES),
        "withdraw only what is free": Guard(NOT_WRITTEN, TWO_PLACES),
        "withdrawal on the round's version": Guard(NOT_WRITTEN, TWO_PLACES),
        "withdrawal moves the round": Guard(NOT_WRITTEN, TWO_PLACES),
        "withdrawal needs the offer": Guard(NOT_WRITTEN, TWO_PLACES),
        "refuse only what was withdrawn": Guard(NOT_WRITTEN, TWO_PLACES),
        "withdraw only what was seen": Guard(NOT_WRITTEN, TWO_PLACES),
        "put once": Guard(TWICE, TWO_PLACES),
        "look after the segment": Guard("I7_AcknowledgedIsListed", TWO_PLACES),
        "seal before the round": Guard(NOT_WRITTEN, TWO_PLACES),
    },
    faults=(
        Fault(
            "a withdrawal goes by whatever is at the round's offset",
            old="/\\ MayBeKept(round.offset) /\\ \\E read",
            new="/\\ \\E read",
            falls=NOT_WRITTEN,
            bounds=TWO_PLACES,
        ),
    ),
    deep={
        "two offers": Deep({"Offers": "{o1, o2}", **TWO_PLACES}),
        "two combiners in full": Deep({"Combiners": "{c1, c2}"}),
    },
)

# A third region that is not asked is only an origin, because one that answers would cost far more states.
ONE_ASKED = {"Asks": '{{"b"}}'}
# Numbers that are missing somewhere: a region skips a gap, or comes when the source has trimmed what came before.
GAP_OR_LATE = {**ONE_ASKED, "OfB": "0", "OfC": "2", "Trimmed": '{"c"}'}
NEW_ORIGIN = {**ONE_ASKED, "OfB": "0", "Anew": '{"c"}'}
NEW_ANSWERER = {**ONE_ASKED, "OfB": "0", "Anew": '{"b"}', "Reading": '{"a"}'}
NEW_ASKER = {**ONE_ASKED, "OfA": "1", "OfB": "0", "OfC": "0", "Anew": '{"a"}'}
RESTORED = {**NEW_ORIGIN, "Restored": '{"c"}'}
ALL = '{"a", "b", "c"}'
TWO_OF_EACH = {
    "OfA": "2",
    "OfB": "2",
    "OfC": "2",
    "Requests": "2",
    "Stopped": "{}",
    "Reading": ALL,
    "Updated": ALL,
    "Asking": '{"a", "b"}',
    "Asks": '{{"b"}, {"b", "c"}, {"a", "c"}}',
}

SNAPSHOT = Model(
    guards={
        "only from the position in force": Guard("I17_OnceAndInOrder"),
        "a new life from its start": Guard("I17_StartWasTrimmed", {**NEW_ORIGIN, "OfNewLives": "2"}),
        "no earlier life again": Guard("I17_OnceAndInOrder", RESTORED),
        "a gap stops the link": Guard("I17_NoneIsMissing", {**GAP_OR_LATE, "OfC": "3"}),
        "wait for the counts": Guard("I21_SnapshotsAreSound"),
        "of the same life": Guard("I21_SnapshotsAreSound", NEW_ORIGIN),
        "from says what is missing": Guard("I21_SnapshotsAreSound", GAP_OR_LATE),
        "from says what never came": Guard("I21_SnapshotsAreSound", ONE_ASKED),
        "the first answer counts": Guard("I21_SnapshotsAreSound", NEW_ANSWERER),
        "the position of the REQUEST": Guard("I21_SnapshotsAreSound"),
        "what retention passed is not sent": Guard("I22_NothingIsPassedUnoffered", {**ONE_ASKED, "Trimmed": '{"a"}'}),
        "a position counts in its life": Guard("I22_NothingIsPassedUnoffered", NEW_ANSWERER),
        "no farther than was given": Guard(
            why="a second line: between regions that keep the rules, each position of an UPDATE was given by an answer"
        ),
        "forward only": Guard("I22_ForwardOnly"),
        "not over an earlier life": Guard("I22_NothingIsPassedUnoffered", NEW_ORIGIN),
        "not over what the sender lacked": Guard("I22_NothingIsPassedUnoffered", GAP_OR_LATE),
    },
    faults=(
        Fault(
            "a SKIP counts what it gives up as if it were here",
            old=", !.taken[source].start = number]",
            new="]",
            falls="I17_NoneIsMissing",
            bounds={**GAP_OR_LATE, "OfC": "3"},
        ),
        Fault(
            "the position in a new life keeps the offset of the earlier one, if that is higher",
            old="next |-> at,",
            new="next |-> Max(at, position.next),",
            falls="I20_PositionIsOfItsLife",
            bounds={**NEW_ORIGIN, "OfC": "2", "OfNewLives": "2"},
        ),
        Fault(
            "a marker that comes first counts what was trimmed as if it were here",
            old="IF is_same THEN position.last ELSE 0",
            new="count",
            falls="I18_PositionIsInTheLog",
            bounds={**ONE_ASKED, "OfA": "1", "OfB": "0", "OfC": "0", "Trimmed": '{"a"}'},
        ),
    ),
    runs={
        "a record of the region that asks": {"OfA": "1", "OfB": "0"},
        "a gap, or a late region": GAP_OR_LATE,
        "retention where it is read": {**ONE_ASKED, "Trimmed": '{"a", "b"}'},
        "a new life of an origin": {**NEW_ORIGIN, "OfB": "1"},
        "a new life of a region that answers": NEW_ANSWERER,
        "a new life of the region that asks": NEW_ASKER,
        "a restored origin": RESTORED,
        "two REQUESTs": {**ONE_ASKED, "OfB": "0", "Requests": "2"},
    },
    deep={
        "a record of each": Deep({"OfA": "1"}),
        "all links, two regions that follow": Deep({"Stopped": "{}", "Updated": '{"b", "c"}', "Reading": ALL}),
        "two regions that ask": Deep(
            {"OfA": "1", "OfC": "0", "Requests": "2", "Updated": ALL, "Asking": '{"a", "b"}', "Asks": '{{"a"}, {"b"}}'}
        ),
        "gaps and late regions": Deep({**GAP_OR_LATE, "OfB": "1"}),
        "a new life of an origin that answers": Deep({"Anew": '{"c"}', "OfB": "0"}),
        "a new life of a region that answers": Deep({**NEW_ANSWERER, "OfB": "1"}),
        "two of each": Deep(TWO_OF_EACH, histories=5_000, depth=80),
        "two of each, new lives, gaps and late regions": Deep(
            {**TWO_OF_EACH, "Anew": ALL, "Trimmed": ALL}, histories=5_000, depth=80
        ),
    },
)

ENDS = {"Kinds": '{"commit", "abort", "time-out"}', "Commits": "0", "Ghosts": "FALSE"}
OFFSETS = {**ENDS, "Commits": "2", "Places": "2"}
THREE_EPOCHS = {**ENDS, "Kinds": '{"commit", "time-out"}', "LastEpoch": "2"}
PLAIN = {**ENDS, "Plain": "TRUE"}

BEHIND = "I12: a batch behind its marker, or of no transaction"

TRANSACTION = Model(
    guards={
        "admit before the create": Guard("I12_OpenIsNamed", ENDS),
        "a new state voids an admission": Guard(BEHIND, ENDS),
        "a lowered epoch voids an admission": Guard(BEHIND, PLAIN),
        "a higher epoch refuses, lapsed or not": Guard(BEHIND, ENDS),
        "create at the judged offset": Guard("I12_MarkerOnce", ENDS),
        "no batch amid an earlier transaction": Guard(
            bounds=ENDS,
            why="a second line: while an earlier transaction is open here, its item admits no batch of a later epoch",
        ),
        "no plain batch amid a transaction": Guard("I11_NothingOlderIsOpen", PLAIN),
        "decide on the version that was read": Guard("I10: what was decided is changed", ENDS),
        "a marker where nothing is open, too": Guard("I12_OpenIsNamed", ENDS),
        "an unknown producer's marker reads the item": Guard("I12_NoMarkerLowers", THREE_EPOCHS),
        "done only from a verified tail": Guard("I12_OpenIsNamed", {**ENDS, "Ghosts": "TRUE"}),
        "a marker counts only in the log": Guard("I12_OpenIsNamed", {**ENDS, "Ghosts": "TRUE"}),
        "Complete after the markers": Guard("I12_OpenIsNamed", ENDS),
        "Complete after the cursors": Guard("I14_PendingIsNamed", OFFSETS),
        "the item in the write of an offset": Guard("I14_PendingIsNamed", OFFSETS),
        "settle only what is older": Guard("one outcome: an offset has another one", OFFSETS),
        "the later commit stays": Guard("I15: an earlier commit wins", OFFSETS),
        "a fenced epoch is for markers alone": Guard("I13_OngoingIsGiven"),
        "ended answers a repeat": Guard("I13: refused, though its own write is in force"),
        "kept answers a repeat": Guard("I13: refused, though its own write is in force"),
    },
    faults=(
        Fault(
            "a late marker ends the next transaction",
            old='IF OpenTo(p, part) < epoch THEN "append"',
            new='IF OpenTo(p, part) <= epoch THEN "append"',
            falls="I12_MarkerOnce",
            bounds=ENDS,
        ),
    ),
    runs={
        "three epochs": THREE_EPOCHS,
        "two commits to the cursor": OFFSETS,
        "plain batches": PLAIN,
    },
    deep={
        "two processes in full": Deep({**ENDS, "Processes": "{p1, p2}", "Places": "4", "Ghosts": "TRUE"}),
        "two partitions": Deep({**ENDS, "Partitions": "{a, b}", "Places": "2", "Ghosts": "TRUE"}),
        "three epochs, with an offset": Deep({**ENDS, "LastEpoch": "2", "Commits": "1"}),
        "four places, and two commits": Deep({"Places": "4", "Commits": "2"}),
    },
)

ONE_SENDING = {"Sendings": "{s1}", "Loses": "TRUE"}
NO_VERSION = {"NamesOnce": "FALSE"}

ONCE = Model(
    guards={
        "one write for all": Guard("I26_AllOrNone", ONE_SENDING),
        "each member on the version that was read": Guard("I26: a member is decided a second time", ONE_SENDING),
        "a member passed over is a condition": Guard("I26: a member that is ongoing is left out", ONE_SENDING),
        "two reads that agree": Guard("I27: a repeat is refused by the version that it raised"),
        "a version above the stored one": Guard("I27: a version is committed twice", ONE_SENDING),
        "the version on the item that was read": Guard("I27: a version is committed twice", ONE_SENDING),
        "a repeat is judged before the version": Guard("I27: a repeat is refused by the version that it raised"),
        "a version alone answers its repeat": Guard("I27: a repeat is refused by the version that it raised"),
        "a version is no evidence for a member under way": Guard(
            "I26: answered, but not all is committed", ONE_SENDING
        ),
        "an end of nothing is refused": Guard("a repeat ends what began after the answer", NO_VERSION),
    },
    faults=(
        Fault(
            "what is under way is ended, though another member was ended before",
            old='IF ~is_whole \\/ repeats THEN "refused"',
            new='IF ~is_whole THEN "refused"',
            falls="a repeat ends what began after the answer",
            bounds=NO_VERSION,
        ),
    ),
    runs={"without a version": NO_VERSION, "a write is lost": ONE_SENDING},
    deep={
        "a write of two sendings is lost": Deep({"Loses": "TRUE"}),
        "three members": Deep({"Members": "{t1, t2, t3}"}),
    },
)

# Constants of Groups.cfg: two members, one partition, three changes of the group, a late request; without commits.
WITH_COMMITS = {"Commits": "TRUE", "Lates": "0"}
NONE_IS_SLOW = {"Slow": "{}"}
TWO_CHANGES = {"Changes": "2"}
# A member's epoch gets ahead of the group's by joins again, each of which counts as a change.
ONE_MEMBER = {"Members": "{m1}"}
FIVE_CHANGES = {**WITH_COMMITS, "Changes": "5"}
PAST, TWO_HOLD, NOT_HELD = "G2_CommitsAreOfTheHolder", "G1_OneItemHoldsIt", "G3_BelievesWhatItHolds"

GROUPS = Model(
    guards={
        "take what no other item holds": Guard(TWO_HOLD, {**TWO_CHANGES, **NONE_IS_SLOW}),
        "read the members after the group": Guard(TWO_HOLD),
        "take on the group's version": Guard(TWO_HOLD, TWO_CHANGES),
        "a member on the version that was read": Guard("G4_HeldByMembers", TWO_CHANGES),
        "release only what was reported": Guard(NOT_HELD, {**TWO_CHANGES, **NONE_IS_SLOW}),
        "a report at the present epoch alone": Guard(NOT_HELD, {**TWO_CHANGES, **NONE_IS_SLOW}),
        "each change of what is shown raises the epoch": Guard(
            NOT_HELD,
            {
                **ONE_MEMBER,
                **NONE_IS_SLOW,
                "Partitions": "{p, q}",
                "Silent": "TRUE",
                "Goes": "TRUE",
                "Changes": "4",
            },
        ),
        "a join releases nothing": Guard(NOT_HELD, NONE_IS_SLOW),
        "a commit on the member's version": Guard(PAST, {**WITH_COMMITS, **TWO_CHANGES}),
        "a commit no earlier than since": Guard(PAST, {**WITH_COMMITS, **TWO_CHANGES}),
        "a removal on the member's version": Guard("G5_RemovedAsJudged", TWO_CHANGES),
        "a removal deletes the item": Guard("G4_HeldByMembers", {**TWO_CHANGES, **NONE_IS_SLOW}),
        "a removal lifts the epoch": Guard(PAST, {**FIVE_CHANGES, **ONE_MEMBER}),
        "a leave lifts the epoch": Guard(PAST, {**FIVE_CHANGES, **ONE_MEMBER, "Leaves": "TRUE"}),
        "a new target raises the epoch": Guard("TokensGrow", {"Lates": "0", **NONE_IS_SLOW}),
    },
    faults=(
        Fault(
            "a member is asked for nothing",
            old="asked == {p \\in held : group.target[p] # m}",
            new="asked == {}",
            falls="G6_ComesToItsTarget",
            bounds={"Changes": "2", "Lates": "0", "Serves": "TRUE"},
        ),
    ),
    runs={
        "commits": {**WITH_COMMITS, "Instances": "TRUE", "Leaves": "TRUE"},
        "everything comes to its target": {"Lates": "0", "Serves": "TRUE"},
        "two partitions": {"Partitions": "{p, q}", **TWO_CHANGES},
    },
    deep={
        "commits, leaves, and a late request": Deep({"Commits": "TRUE", "Instances": "TRUE", "Leaves": "TRUE"}),
        "four changes": Deep({"Changes": "4"}),
        "two late requests": Deep({"Lates": "2", "Silent": "TRUE"}),
        "two slow processes": Deep({"Slow": "{s1, s2}"}),
        "three members": Deep({"Members": "{m1, m2, m3}"}),
        "two partitions, three changes": Deep({"Partitions": "{p, q}", "Goes": "TRUE", "Serves": "TRUE", "Lates": "0"}),
    },
)

MODELS: Mapping[str, Model] = {
    "Append": APPEND,
    "Access": ACCESS,
    "Transaction": TRANSACTION,
    "Once": ONCE,
    "Combining": COMBINING,
    "Snapshot": SNAPSHOT,
    "Groups": GROUPS,
}
