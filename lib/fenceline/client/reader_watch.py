"""The watch of a plain subscriber for another one that reads the same partition.

Rule: two subscribers of one partition are shown the same records, and do their work twice. Each acknowledgement carries
the reader's id, and its answer names another reader that the cursor remembers. A warning needs more than one such
answer: the other reader must have acknowledged since this one first did in that partition. So a subscriber that follows
a stopped one warns of nothing, and no clock is compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fenceline import errors
from fenceline.client.requests.subscriptions import SubscriptionRequests
from fenceline.model.subscription import Acknowledged, OtherReader

log = logging.getLogger("fenceline.readers")  # of its own, so that the command line can show this alone

_NEW = ("reader_id", "client_name")  # which an older service refuses


class ReaderWatch:
    """The acknowledgements of one subscriber, which warns once of another one.

    Args:
        reader_id: Fresh for each subscriber.
        session_id: The session that owns the partitions. Then there is no second reader, and nothing to watch.
        is_shared: Whether the program knows of the others; it names itself to them, and warns of none.
    """

    def __init__(
        self,
        client: SubscriptionRequests,
        topic: str,
        name: str,
        reader_id: str,
        session_id: str | None,
        *,
        is_shared: bool,
    ) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._session_id = session_id
        self._reader_id = reader_id if session_id is None else None
        self._is_quiet = is_shared
        self._first: dict[int, OtherReader | None] = {}  # by partition, as the first answer had it

    def acknowledge(
        self,
        partition: int,
        *,
        cumulative: int | None = None,
        individual: Iterable[int] | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Acknowledge, as ``Client.acknowledge`` does, and warn of another reader."""
        offsets = None if individual is None else list(individual)

        def send() -> Acknowledged:
            return self._client.acknowledged(
                self._topic,
                self._name,
                partition,
                cumulative=cumulative,
                individual=offsets,
                session_id=self._session_id,
                reader_id=self._reader_id,
                retry_ms=retry_ms,
                timeout_ms=timeout_ms,
            )

        try:
            answer = send()
        except errors.InvalidRequestError as error:
            if self._reader_id is None or error.extra.get("field") not in _NEW:
                raise
            self._reader_id = None  # an older service, which refused the member and acknowledged nothing
            answer = send()
        self._look(partition, answer.other_reader)
        return answer.mark_delete_offset

    def _look(self, partition: int, other: OtherReader | None) -> None:
        first = self._first.setdefault(partition, other)
        if self._is_quiet or other is None or other == first:
            return
        self._is_quiet = True
        log.warning(
            "another reader acknowledges the same partition, so that both are shown its records; share the partitions "
            "by a group (client.consumer, --group), own them (client.own, 'fenceline own'), or say that this is meant "
            "(shared=True, --shared): subscription=%s topic=%s partition=%d other=%s",
            self._name,
            self._topic,
            partition,
            other.client_name or "(without a client_name)",
        )
