"""A fenceline service: what goes on there, made here and kept alive by modules of its own.

The rule: what API.md lets one do in one request is a method of one of the three that ``Client`` inherits, answered or
raised, as transport.py says. Here are those that stay: ``producer``, ``reader``, ``subscribe``, ``session``, ``own``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.client.api import ApiClient
from fenceline.client.requests.subscriptions import InitialPosition, Isolation
from fenceline.client.session import OnLost, Session
from fenceline.client.types import AccessMode
from fenceline.format.partitioner import partition_of

if TYPE_CHECKING:
    from fenceline.client.owner import Owner, Resources
    from fenceline.client.producer import Producer
    from fenceline.client.reader import Reader, Start
    from fenceline.client.subscriber import Subscriber
    from fenceline.client.write_access import OnQueued, WriteAccess
    from fenceline.format.batch import Codec

BATCH_BYTES = 512 * 1024  # before compression; a topic takes 1 MiB by default
BUFFER_BYTES = 32 * 1024 * 1024
DELIVERY_MS = 120_000


class Client(ApiClient):
    """A fenceline service at ``url``. Safe to share between threads; a context manager that closes its connections.

    Every method raises the error that the service answered (errors.py). Besides, where there is no answer:
    ``StoreUnavailableError`` if nothing was carried out, ``OutcomeUnknownError`` if it may have been. The logger
    ``fenceline`` warns of each request that is sent again.

    Args:
        timeout_ms: How long one request may stay without an answer.
        client_name: What the sessions that are made here show to people, such as host and process (Kafka's
            ``client.id``): text of 1 to 256 bytes, without control characters.
        retry_ms: How long a request is sent again while that is safe, before its last error is raised. A client that
            never reached the service stops within 2 s where connections are refused.
        region: AWS's, of a deployed API that lets in only whom IAM does: every request is then signed (``SigV4``) by
            the credentials that every AWS tool finds. It needs ``fenceline[aws]``.
        http: What carries the requests, for tests; ``None`` is the network.

    Raises:
        UnauthenticatedError: There are no credentials to sign by.
    """

    def producer(
        self,
        topic: str,
        *,
        idempotent: bool = True,
        linger_ms: int = 5,
        batch_bytes: int = BATCH_BYTES,
        compression: Codec = "zstd",
        max_in_flight: int = 4,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_ms: int = DELIVERY_MS,
        partitioner: Callable[[bytes, int], int] = partition_of,
        access_mode: AccessMode | None = None,
        partitions: Iterable[int] | None = None,
        producer_name: str | None = None,
        session: Session | None = None,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        on_queued: OnQueued | None = None,
        on_fenced: OnLost | None = None,
        owner: Owner | None = None,
        session_id: str | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> Producer:
        """Return a producer of ``topic``, to be closed when done; see ``Producer``.

        With ``access_mode`` it first claims ``partitions`` (all, if left out), and then keeps its lease by itself until
        it is closed or fenced (PIP-68). With ``owner`` it writes to the partitions that are owned there, and with
        ``session_id`` to those that this session has claimed or owns: somebody else keeps that one.

        Args:
            session: Claim under this one; left out, a session of ``lease_ms`` is made, and closed with the producer.
            wait_ms: How long WaitForExclusive waits; ``None`` is as long as it takes.
            on_queued: Told by each poll that the claim is still queued.
            on_fenced: Told once that it may no longer write, in the thread that learns of it.
            expected_offsets: For a partition the offset that its next record must get, and so on (KIP-27).

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            ProducerBusyError: Somebody is in the way, and may end by itself; or it waited for ``wait_ms``.
            ProducerFencedError: Somebody has exclusive access.
        """
        from fenceline.client.producer import Producer
        from fenceline.client.write_access import WriteAccess, claim_access, lent_access

        described = self.topic(topic)
        access: WriteAccess | None = None
        if owner is not None:
            access = owner.write_access(topic)
        elif session_id is not None:
            access = lent_access(self, topic, session_id)
        elif access_mode is not None:
            grant = claim_access(
                self,
                topic,
                access_mode=access_mode,
                partitions=partitions,
                producer_name=producer_name,
                session=session,
                lease_ms=lease_ms,
                wait_ms=wait_ms,
                on_queued=on_queued,
            )
            access = WriteAccess(grant, grant.claim.topic_epochs, is_producers_own=True)
        try:
            producer = Producer(
                self,
                described,
                is_idempotent=idempotent,
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                compression=compression,
                max_in_flight=max_in_flight,
                buffer_bytes=buffer_bytes,
                delivery_ms=delivery_ms,
                partitioner=partitioner,
                access=access,
                expected_offsets=expected_offsets,
            )
        except BaseException:
            if access is not None and access.is_producers_own:
                access.close()
            raise
        if access is not None and on_fenced is not None:
            access.holding.when_lost(on_fenced)
        return producer

    def reader(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        start: Start = "earliest",
        follow: bool = False,
        isolation: Isolation = "read_uncommitted",
        max_bytes: int = limits.BYTES_DEFAULT,
        group: str | None = None,
        session_id: str | None = None,
    ) -> Reader:
        """Return a reader of ``partitions`` (if left out, all that there are now), to be closed; see ``Reader``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic or partition.
        """
        from fenceline.client.reader import Reader

        if partitions is None:
            partitions = range(self.topic(topic).partitions)
        return Reader(
            self,
            topic,
            partitions,
            start=start,
            is_following=follow,
            isolation=isolation,
            max_bytes=max_bytes,
            group=group,
            session_id=session_id,
        )

    def subscribe(
        self,
        topic: str,
        name: str,
        partitions: Sequence[int] | None = None,
        *,
        initial_position: InitialPosition = "latest",
        follow: bool = True,
        isolation: Isolation = "read_uncommitted",
        session: Session | None = None,
        session_id: str | None = None,
        max_records: int = limits.RECORDS_DEFAULT,
        ack_every_ms: int = 0,
    ) -> Subscriber:
        """Return a subscriber of what is not acknowledged, to be closed; see ``Subscriber``.

        Args:
            partitions: If left out, all that there are now.
            initial_position: Where a subscription begins that does not exist yet.
            follow: Never end, and wait for new records.
            session: The one that owns the partitions for the group of this name; or its ``session_id``, where somebody
                else keeps it.
            ack_every_ms: Gather acknowledgements for so long, and send them together. At 0 each is a request of its
                own. A crash repeats at most what was acknowledged within this time.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            ValueError: ``ack_every_ms`` is negative.
        """
        from fenceline.client.subscriber import Subscriber

        if ack_every_ms < 0:
            raise ValueError(f"a time to gather is 0 ms or more: ack_every_ms={ack_every_ms}")
        self.create_subscription(topic, name, initial_position=initial_position)
        if partitions is None:
            partitions = range(self.topic(topic).partitions)
        return Subscriber(
            self,
            topic,
            name,
            partitions,
            is_following=follow,
            isolation=isolation,
            session_id=session_id if session is None else session.session_id,
            max_records=max_records,
            ack_every_ms=ack_every_ms,
        )

    def session(self, *, lease_ms: int | None = None) -> Session:
        """Return a new session that keeps its lease by itself, to be closed; see ``Session``."""
        return Session(self, lease_ms)

    def own(
        self,
        resources: Resources,
        *,
        group: str | None = None,
        generation: int | None = None,
        session: Session | None = None,
        lease_ms: int | None = None,
        wait_ms: int | None = 0,
        on_severed: OnLost | None = None,
        on_wait: OnLost | None = None,
    ) -> Owner:
        """Own resources, all of them or none, until they are given back or lost; see ``Owner``.

        Args:
            resources: One, several, or each with its generation.
            group: Whose reading and committing is owned; without it a ``topic/partition`` is owned for writing.
            generation: Of all of them. With it, an owner of a lower or equal one is severed.
            session: Own under this one; left out, a session of ``lease_ms`` is made, and closed with the owner.
            wait_ms: How long to try again while somebody else owns one, or answers are lost; ``None`` is as long as it
                takes.
            on_severed: Told once that it is lost, in the thread that learns of it.
            on_wait: Told once, by the first refusal, that it has to wait.

        Raises:
            ResourceOwnedError: Another session owns one, and no generation was given.
            StaleGenerationError: A generation below the last granted one.
            OutcomeUnknownError: The answer was lost, and the time is over; under ``session`` it may own some of them.
        """
        from fenceline.client import owner as client_owner

        return client_owner.own(
            self,
            resources,
            group=group,
            generation=generation,
            session=session,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            on_severed=on_severed,
            on_wait=on_wait,
        )

    def lock(self, resource: str, *, wait_ms: int | None = None, on_severed: OnLost | None = None) -> Owner:
        """Own one resource, and wait for it; see ``own``."""
        return self.own(resource, wait_ms=wait_ms, on_severed=on_severed)
