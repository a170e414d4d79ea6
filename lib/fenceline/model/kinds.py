"""Kinds of members that several answers have: their values, and their description in the served document.

Rule: a kind is a type with its bounds (``fenceline.answers``). Requests take the same kinds, so that a name that was
answered can be asked for.

Not here: a kind that one class alone has; it is beside that class.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias, get_args

from fenceline import limits
from fenceline.answers import Stated, Titled, Whole


def _named(chars_max: int) -> Stated:
    return Stated(
        pattern=rf"^(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{chars_max}}}$"
    )  # neither . nor ..: no path could hold it


Offset: TypeAlias = Annotated[int, Whole()]
Epoch: TypeAlias = Annotated[int, Whole(-1)]
Timestamp: TypeAlias = Annotated[int, Whole(-1)]  # a record's, in ms; -1 without one
Count: TypeAlias = Annotated[int, Whole(1)]
ProducerEpoch: TypeAlias = Annotated[int, Whole(0, limits.MARKER_EPOCH_MAX)]
PartitionNumber: TypeAlias = Annotated[int, Whole(0, limits.PARTITIONS_MAX - 1)]
PartitionCount: TypeAlias = Annotated[int, Whole(1, limits.PARTITIONS_MAX)]
LeaseMs: TypeAlias = Annotated[int, Whole(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)]
Generation: TypeAlias = Annotated[int, Whole(0, limits.GENERATION_MAX)]

TopicName: TypeAlias = Annotated[str, _named(limits.TOPIC_NAME_CHARS_MAX)]
SubscriptionName: TypeAlias = Annotated[str, _named(limits.SUBSCRIPTION_NAME_CHARS_MAX)]  # groups, too
ProducerName: TypeAlias = Annotated[str, _named(limits.PRODUCER_NAME_CHARS_MAX)]
RegionName: TypeAlias = Annotated[str, Stated(pattern="^[a-z0-9-]{1,63}$")]
# Neither / nor control characters, and neither . nor .., because no path could hold such an id.
TransactionalId: TypeAlias = Annotated[
    str,
    Stated(pattern=rf"^(?!\.{{1,2}}$)[^/\u0000-\u001f\u007f]{{1,{limits.TRANSACTIONAL_ID_BYTES_MAX}}}$"),
]
ResourceName: TypeAlias = Annotated[str, Stated(minLength=1, maxLength=limits.RESOURCE_BYTES_MAX)]
MemberId: TypeAlias = Annotated[str, _named(limits.MEMBER_ID_CHARS_MAX)]  # of a group
MemberEpoch: TypeAlias = Annotated[int, Whole()]
GroupName: TypeAlias = Annotated[str, Stated(minLength=1, maxLength=limits.GROUP_BYTES_MAX)]  # that acts as an owner
Url: TypeAlias = Annotated[str, Stated(format="uri")]

# No control characters, no line or paragraph ends, nothing that turns the direction of text (Unicode's Bidi_Control).
CLIENT_NAME_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+$"
ClientName: TypeAlias = Annotated[
    str, Stated(minLength=1, maxLength=limits.CLIENT_NAME_BYTES_MAX, pattern=CLIENT_NAME_PATTERN)
]
# Surrogates are not in the pattern, because JSON text has none, and a validator that can't name one refuses the
# pattern.
_CLIENT_NAME, _LONE_SURROGATE = re.compile(CLIENT_NAME_PATTERN), re.compile(r"[\ud800-\udfff]")


def is_client_name(text: str) -> bool:
    """Return True if ``text`` may name a client: it fits, and a terminal can take none of it for more than text."""
    is_text = _CLIENT_NAME.fullmatch(text) is not None and _LONE_SURROGATE.search(text) is None
    return is_text and len(text.encode()) <= limits.CLIENT_NAME_BYTES_MAX


_Mode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]
AccessMode: TypeAlias = Annotated[
    _Mode, Titled("AccessMode", "How a producer shares its partitions with others (PIP-68).")
]
ACCESS_MODES: tuple[str, ...] = get_args(_Mode)
Codec: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Isolation: TypeAlias = Annotated[
    Literal["read_uncommitted", "read_committed"],
    Titled("Isolation", "Whether records of open and aborted transactions are shown."),
]
