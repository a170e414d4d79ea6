"""Names of resources: which guard a partition, which are locks, and where the ownership of each is kept.

Rule: a resource ``topic/partition`` whose partition exists when it is claimed belongs to that incarnation of the topic.
Its item is among that partition's items, and is deleted with them. Any other string is a lock, and guards nothing, even
if such a topic is created later (DESIGN.md, "Ownership (Single Reader/Writer)").

Not here: which session owns a resource (``ownership.rules``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.model.requests import OwnTarget
from fenceline.model.topic import LEGAL_NAME
from fenceline.ports import ItemKey

_PARTITION_NAME = re.compile(r"(?P<topic>[^/]+)/(?P<partition>0|[1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, as it was found when it was claimed: what it guards, and where its ownership is kept.

    Args:
        group: The group whose reads and commits it guards; ``None`` is not the same as any group.
        topic_id: The incarnation that it belongs to; ``""`` for a plain string.
        topic: Together with ``partition``: what it guards, if it guards anything.
    """

    name: str
    group: str | None
    topic_id: str = ""
    topic: str = ""
    partition: int = -1

    @property
    def is_plain(self) -> bool:
        """Return True if it is a lock, and guards no partition."""
        return not self.topic_id

    @property
    def is_write_access(self) -> bool:
        """Return True if owning it is exclusive access to a partition (DESIGN.md, "Write access by own")."""
        return self.group is None and not self.is_plain

    @property
    def key(self) -> ItemKey:
        if self.is_plain:
            return keys.lock_item(self.group, self.name)
        return keys.ownership_item(self.topic_id, self.partition, self.group)


def partition_named(resource: str) -> tuple[str, int] | None:
    """Return the (topic, partition) that a resource names, if its form is that of one."""
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
