"""A stream's progress as a group's committed offsets, for the backlog and for alarms.

Rule: the group is a copy for people. A stream never reads it back, and it lags by one batch. A commit that fails is
only a warning, because the next commit makes up for it.
"""

from __future__ import annotations

import logging

from fenceline.client import Client, CommittedOffset
from fenceline.errors import FencelineError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fenceline_spark.source.offsets import PartitionOffsets

# Not below "fenceline", which is silent unless a program asks for output: a warning is meant to be seen.
log = logging.getLogger("fenceline_spark")

_AT_ONCE = 32  # partitions in a request


class ProgressGroup:
    """The group ``name``, and what was committed to it by this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._committed = PartitionOffsets({})

    def commit(self, client: Client, end: PartitionOffsets) -> None:
        """Commit the offsets that differ from the last ones: a request for each topic and 32 partitions."""
        for topic, offsets in end.partitions.items():
            known = self._committed.of_topic(topic)
            if end.topic_ids.get(topic) != self._committed.topic_ids.get(topic):
                known = {}
            changed = [
                CommittedOffset(topic, number, offset)
                for number, offset in offsets.items()
                if known.get(number) != offset
            ]
            for at in range(0, len(changed), _AT_ONCE):
                try:
                    client.commit_offsets(self._name, changed[at : at + _AT_ONCE])
                except (UnknownTopicOrPartitionError, OffsetOutOfRangeError):
                    break  # the topic is gone, or was created anew: the next latestOffset judges that
                except FencelineError as error:
                    log.warning(
                        "the stream goes on, but its group did not follow; let no consumer own a partition for that "
                        "group: progressGroup=%s why=%s",
                        self._name,
                        error,
                    )
                    return
        self._committed = end
