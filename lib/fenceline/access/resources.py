"""Resources, each of which guards a partition or is a lock, and the item that names a resource's owner.

Rule: a resource ``topic/partition`` whose partition exists when it is claimed belongs to that incarnation of the topic.
Its item is among that partition's items, and is deleted with them. Any other string is a lock, and guards nothing, even
if such a topic is created later (protocol, "Ownership (Single Reader/Writer)").

Not here: the decision which session owns a resource (``ownership.decision``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline import limits
from fenceline.access.session_item import OwnedHold
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.model.requests import OwnTarget
from fenceline.model.topic import LEGAL_NAME
from fenceline.ports import Item, ItemKey

_PARTITION_NAME = re.compile(r"(?P<topic>[^/]+)/(?P<partition>0|[1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, as it was found when it was claimed, with the place of its ownership.

    Args:
        group: The group whose reads and commits it guards; ``None`` is not the same as any group.
        topic_id: The incarnation to which it belongs; ``""`` for a plain string.
        topic: With ``partition``, the partition that it guards, if it guards one.
    """

    name: str
    group: str | None
    topic_id: str = ""
    topic: str = ""
    partition: int = -1

    @property
    def is_plain(self) -> bool:
        """Return True if the resource is a lock, and guards no partition."""
        return not self.topic_id

    @property
    def is_write_access(self) -> bool:
        """Return True if owning the resource is exclusive access to a partition (protocol, "Write access by own")."""
        return self.group is None and not self.is_plain

    @property
    def key(self) -> ItemKey:
        if self.is_plain:
            return keys.lock_item(self.group, self.name)
        return keys.ownership_item(self.topic_id, self.partition, self.group)

    @property
    def owned(self) -> OwnedHold:
        """The resource, as a session's item has it."""
        return OwnedHold(self.group, self.name, self.topic_id)

    @classmethod
    def of(cls, owned: OwnedHold) -> Resource:
        """Return a resource that a session claimed, as it was at the claim."""
        topic, partition = (partition_named(owned.resource) if owned.topic_id else None) or ("", -1)
        return cls(owned.resource, owned.group, owned.topic_id, topic, partition)


@dataclass(frozen=True, slots=True)
class OwnershipItem:
    """A resource's item: the last granted generation and token, and the session that got them.

    Args:
        severed: The sessions that this session severed for the resource. Before any answer says that it owns the
            resource, their fences are finished, by the request that severed them, or by the same request sent again.
    """

    generation: int = 0
    fencing_token: int = -1
    session_id: str | None = None
    severed: tuple[str, ...] = ()
    since: int | None = None  # when that session took it; None: an older version wrote it
    version: int | None = None  # None: it is not stored yet

    def to_value(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "fencing_token": self.fencing_token,
            "session_id": self.session_id,
            "severed": list(self.severed),
            "since": self.since,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any], version: int | None = None) -> OwnershipItem:
        severed, since = tuple(value["severed"]), value.get("since")
        return cls(value["generation"], value["fencing_token"], value["session_id"], severed, since, version)

    @classmethod
    def from_item(cls, item: Item | None) -> OwnershipItem:
        """Return the ownership that an item holds; a resource without an item was never owned."""
        return cls() if item is None else cls.from_value(item.value, item.version)


def partition_named(resource: str) -> tuple[str, int] | None:
    """Return the (topic, partition) that a resource names, if it has the form of one."""
    match = _PARTITION_NAME.fullmatch(resource)
    if match is None or not LEGAL_NAME.fullmatch(match["topic"]):
        return None
    return match["topic"], int(match["partition"])


def check_wanted(group: str | None, wanted: Sequence[OwnTarget]) -> None:
    """Judge the form of a claim.

    Raises:
        InvalidRequestError: A name or a number is out of its bounds, or a resource is given twice.
    """
    check_group(group)
    _check_resources([one.resource for one in wanted], "resources[{}].resource")
    for index, one in enumerate(wanted):
        if one.generation is not None and not 0 <= one.generation <= limits.GENERATION_MAX:
            field = f"resources[{index}].generation"
            raise InvalidRequestError(f"{field} must be from 0 to {limits.GENERATION_MAX}", field=field)


def check_released(group: str | None, resources: Sequence[str]) -> None:
    """Judge the form of a release; see ``check_wanted``."""
    check_group(group)
    _check_resources(resources, "resources[{}]")


def check_group(group: str | None) -> None:
    if group is not None:
        _check_text(group, limits.GROUP_BYTES_MAX, "group")


def check_resource(resource: str, field: str = "resource") -> None:
    _check_text(resource, limits.RESOURCE_BYTES_MAX, field)


def _check_resources(resources: Sequence[str], field: str) -> None:
    if not 1 <= len(resources) <= limits.RESOURCES_PER_OWN_MAX:
        raise InvalidRequestError(f"resources must be a list of 1 to {limits.RESOURCES_PER_OWN_MAX}", field="resources")
    for index, resource in enumerate(resources):
        check_resource(resource, field.format(index))
        if resource in resources[:index]:
            raise InvalidRequestError("each resource may be given only once", field=field.format(index))


def _check_text(text: str, bytes_max: int, field: str) -> None:
    try:
        is_right = 1 <= len(text.encode()) <= bytes_max
    except UnicodeEncodeError:
        is_right = False
    if not is_right:
        raise InvalidRequestError(f"{field} must be text of 1 to {bytes_max} bytes", field=field)
