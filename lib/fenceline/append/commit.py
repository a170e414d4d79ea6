"""The commit: the create that appends a group to a partition, and the search for its outcome.

Rule: *the only thing that commits an append is the creation, if absent, of the segment at the state's next offset*
("The commit point", I1). Its line is in ``create``. A group whose create was not answered stays at its offset until the
outcome there is known ("Frozen groups").

Not here: what follows from an outcome; see ``append.appender``. The time that is left to rivals; see
``append.contention``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline.append.group import Group
from fenceline.format.segment import Segment, read_segment
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class Exists:
    """An object is at the group's offset: the group's own, by a create that was not answered, or a rival's."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store did not answer: the group may be in the log, or may still land there."""


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The store refused the create, and this attempt wrote nothing."""

    fact: Unavailable | None  # None: another create of the same key was under way


@dataclass(frozen=True, slots=True)
class Committed:
    """The group is in the log, and may be acknowledged."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A rival's segment has the offset: no create of the group can land there any longer."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Gone:
    """The offset is no longer part of the log."""

    is_unknown: bool  # the group may have been written before that


def create(partition: Partition, group: Group) -> Committed | Exists | Unknown | NotWritten | Gone:
    """Create the group's segment at the state's next offset, if nothing is there, and confirm it.

    Raises:
        Unavailable: As ``confirm``; the group is created.
    """
    segment = group.segment
    assert segment is not None
    key = partition.segment_key(segment.base_offset)
    try:
        # The commit point (I1): this create, if absent, commits the append. A process that loses it has written nothing
        # that a reader can see. It folds the winner's segment, and checks its entries again after that.
        # model: Append, "create if absent"
        # model: Access, "create at the judged offset"
        partition.context.objects.create(key, segment.body, segment.metadata.to_strings())
    except AlreadyExists:
        return Exists()
    except NoAnswer:
        return Unknown()
    except Conflict:
        return NotWritten(None)
    except Unavailable as fact:
        return NotWritten(fact)
    return confirm(partition, group)


def resolve_existing_segment(partition: Partition, group: Group, *, was_unknown: bool) -> Committed | Lost | Gone:
    """Find out by its write id if the object at the group's offset is a rival's, or the group's own, and confirm that.

    Args:
        was_unknown: Whether an earlier create of the group may have written it.

    Raises:
        CorruptLogError: The object is damaged.
        Unavailable: It could not be read, or as ``confirm``.
    """
    assert group.segment is not None
    metadata = group.segment.metadata
    try:
        found = read_segment(partition.context.objects, partition.segment_key(group.segment.base_offset))
    except NotFound:
        # The object was collected meanwhile. So this process's look at the log start is too old, and the object may
        # have been the group's own.
        partition.forget()
        # A replicated group is checked again, and the log's position in its source shows if the log has it (I18).
        return Gone(is_unknown=was_unknown and metadata.replicated is None)
    if found.metadata.write_id == metadata.write_id:
        return confirm(partition, group)
    # model: Append, "judge again"
    # model: Transaction, "create at the judged offset"
    return Lost(found)


def confirm(partition: Partition, group: Group) -> Committed | Gone:
    """Find out whether the group's segment, which exists, is part of the log, and if so advance by it (I7).

    Raises:
        Unavailable: The items could not be read. The group is created, and only this is to be tried again.
    """
    segment = group.segment
    assert segment is not None
    group.is_created = True
    entry = group.appended[0].entry
    try:
        # model: Append, "look after create"
        is_kept = partition.is_kept(segment.base_offset, is_going_allowed=entry.is_going_allowed)
    except StaleTopicId:
        return Gone(is_unknown=not entry.is_internal)
    if not is_kept:  # model: Transaction, "a marker counts only in the log"
        partition.forget()
        return Gone(is_unknown=not entry.is_internal)
    partition.take_own(group.base, segment, group.folded)
    return Committed()
