"""A fenceline service as a program sees it: its requests, and the objects that live on after one.

Rule: a single request is a method of ``ApiClient`` (api.py). Here are the methods that return an object which lives on:
``producer``, ``transactional_producer``, ``reader``, ``subscribe``, ``consumer``, ``session`` and ``own``. Each of
these objects has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, public, refuse
from fenceline.client.following import IDLE_DELAY_MS, MAX_DELAY_MS
from fenceline.client.requests.subscriptions import InitialPosition
from fenceline.client.session import OnLost, Session
from fenceline.format.partitioner import partition_of
from fenceline.model.kinds import AccessMode, Isolation

if TYPE_CHECKING:
    from fenceline.client.consumer.consumer import Consumer
    from fenceline.client.consumer.share import Commit, OnPartitions
    from fenceline.client.owner import Owner, Resources
    from fenceline.client.producer import Producer
    from fenceline.client.reader import Reader, Start
    from fenceline.client.subscriber import Subscriber
    from fenceline.client.transactions.producer import TransactionalProducer
    from fenceline.client.write_access import OnGrowth, OnQueued, WriteAccess
    from fenceline.format.batch import Codec

BATCH_BYTES = 512 * 1024  # before compression; a topic takes 1 MiB by default
BUFFER_BYTES = 32 * 1024 * 1024
DELIVERY_MS = 120_000


@public
class Client(ApiClient):
    """A fenceline service at ``url``. Safe to share between threads; a context manager that closes its connections.

    Every method raises the error that the service answered (``fenceline.errors``). Without an answer it raises
    ``StoreUnavailableError`` if nothing was carried out, ``OutcomeUnknownError`` if it may have been. The logger
    ``fenceline`` warns of each request that is sent again.

    A wrong argument of any call raises ``InvalidRequestError`` before anything is sent. The error is a ``TypeError`` or
    a ``ValueError``, too, and its ``field`` names the argument.

    A client, and all that it makes, works in the process that made it. In a child that was forked each call raises
    ``RuntimeError``, and ``close`` does nothing: make a client there.

    Args:
        timeout_ms: How long one request may stay without an answer.
        client_name: The name that sessions of this client show to people, such as host and process (Kafka's
            ``client.id``). It is text of 1 to 256 bytes, without control characters.
        retry_ms: How long a request is sent again while that is safe, before its last error is raised. A client that
            never reached the service stops within 2 s where connections are refused.
        region: The AWS region of a deployed API that IAM protects. Every request is then signed (``SigV4``) with the
            credentials that every AWS tool finds; this needs ``fenceline-log[aws]``.
        http: The carrier of the requests, for tests; ``None`` is the network.

    Raises:
        UnauthenticatedError: There are no credentials to sign with.
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
        on_growth: OnGrowth | None = None,
    ) -> Producer:
        """Return a producer of ``topic``; the caller closes it. See ``Producer``.

        With ``access_mode`` the producer first claims ``partitions`` (all, if left out), and then renews its lease
        until the producer is closed or fenced (PIP-68). With ``owner`` the producer writes to the partitions that this
        owner has. With ``session_id`` it writes to those that this session has claimed or owns, while another process
        keeps that session.

        The producer looks at its topic again each 60 s. Once partitions were added, keys are divided among all of them.
        A producer that has write access to the whole topic first needs write access to the new partitions. Where
        ``partitions`` was left out, the producer claims them, as Exclusive unless its own mode is Shared. While that
        claim is refused, the producer goes on with the partitions that it has, and claims again after each look.

        Args:
            session: Claim under this session. Left out, the producer makes one of ``lease_ms`` and closes it at its
                end.
            wait_ms: How long WaitForExclusive waits; ``None`` waits as long as it takes.
            on_queued: Called by each poll that finds the claim still queued.
            on_fenced: Called once the producer may no longer write, in the thread that learns of it.
            expected_offsets: For a partition, the offset that its next record must get, and so on (KIP-27).
            on_growth: Called with the topic and ``None`` once the producer writes to partitions that were added, and
                with the topic and the error after each look at which it may not. The thread that looks calls it. An
                exception of the callback goes to ``threading.excepthook``, and the looks go on.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            ProducerBusyError: Another producer has access, or the claim was still queued after ``wait_ms``. That
                producer may end by itself.
            ProducerFencedError: Another producer has exclusive access.
        """
        from fenceline.client.producer import Producer
        from fenceline.client.write_access import claim_access, given_back_on_error, lent_access

        described = self.topic(topic)
        access: WriteAccess | None = None
        if owner is not None:
            access = owner.write_access(topic)
        elif session_id is not None:
            access = lent_access(self, topic, session_id)
        elif access_mode is not None:
            access = claim_access(
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
        with given_back_on_error(access):
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
                on_growth=on_growth,
            )
        if access is not None and on_fenced is not None:
            access.holding.when_lost(on_fenced)
        return producer

    def transactional_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = limits.TRANSACTION_TIMEOUT_MS_DEFAULT,
        linger_ms: int = 5,
        batch_bytes: int = BATCH_BYTES,
        compression: Codec = "zstd",
        max_in_flight: int = 32,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_ms: int = DELIVERY_MS,
        partitioner: Callable[[bytes, int], int] = partition_of,
    ) -> TransactionalProducer:
        """Return a producer of transactions; the caller closes it. See ``TransactionalProducer``.

        The producer's first request fences every earlier instance of ``transactional_id``, and ends the transaction
        that such an instance left open. So an id names one share of the work, such as a partition of the input, and is
        the same after each start.

        Args:
            timeout_ms: How long a transaction may be open, 1 to 900000. The service aborts a transaction that is open
                for longer, and fences this instance.
            max_in_flight: How many batches, of as many partitions, are sent at once.
            delivery_ms: How long a batch is sent again before its transaction fails, and how long an end is sent again
                until it is answered. The last try is over by then, too, even if it hangs.

        The others are those of ``producer``.

        Raises:
            InvalidTransactionTimeoutError: ``timeout_ms`` is out of its bounds.
            ConcurrentTransactionsError: The service is still finishing an earlier instance's transaction.
        """
        from fenceline.client.transactions.producer import TransactionalProducer

        return TransactionalProducer(
            self,
            transactional_id,
            timeout_ms=timeout_ms,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            max_in_flight=max_in_flight,
            buffer_bytes=buffer_bytes,
            delivery_ms=delivery_ms,
            partitioner=partitioner,
        )

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
        compacted: bool = False,
        on_restart: Callable[[int], object] | None = None,
        new_from: int | None = None,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
    ) -> Reader:
        """Return a reader of ``partitions`` (left out: all); the caller closes it. See ``Reader``.

        Args:
            start: A mapping may lack a partition where ``partitions`` is left out: that one is read from its log start.
            isolation: ``read_committed`` shows a transaction's records once the transaction is committed, and never
                those of an aborted one. No record after the first open transaction shows before that transaction ends.
            compacted: Read the newest record of each key, and all records after the last compaction.
            on_restart: Called with a partition that ``compacted`` reads from the beginning again, because a newer view
                may lack deletions that were not read, or has another order. Drop what was made of the partition's
                records.
            new_from: A reader that follows also reads the partitions from this number on, within 60 s after they are
                added and from their beginning. The number is above each of ``partitions``, which name one at least. If
                it is left out, then all new partitions are read where ``partitions`` is left out, too, and none
                otherwise.
            max_delay_ms: How old a record may be when a reader that follows reads it, in ms. One poll asks for all
                partitions each ``max_delay_ms``; while records come, at once. Below 500, and where it costs nothing
                (``fenceline dev``), the service holds the polls instead. A longer delay is cheaper (see
                ``fenceline cost``).
            idle_delay_ms: The same after a minute in which no record came, until one comes; at least ``max_delay_ms``.
                Polls that are held stay held.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic or partition.
        """
        from fenceline.client.reader import Reader

        if new_from is not None and not follow:
            refuse(WrongValueError, "new_from", "left out by a reader that does not follow", new_from)
        topic_id: str | None = None
        if partitions is None:
            found_topic = self.topic(topic)
            topic_id = found_topic.topic_id
            partitions = range(found_topic.partitions)
            if follow and new_from is None:
                new_from = len(partitions)
            if isinstance(start, Mapping) and (unnamed := [one for one in partitions if one not in start]):
                found = self.topic_offsets(topic, unnamed)
                start = {**start, **{one: found[one].bounds.log_start_offset for one in unnamed}}
        if new_from is not None and not partitions:
            refuse(WrongValueError, "partitions", "one at least where new_from is given", partitions)
        if new_from is not None and new_from <= max(partitions):
            refuse(WrongValueError, "new_from", f"above each partition, up to {max(partitions)}", new_from)
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
            is_compacted=compacted,
            on_restart=on_restart,
            new_from=new_from,
            max_delay_ms=max_delay_ms,
            idle_delay_ms=idle_delay_ms,
            topic_id=topic_id,
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
        require_stable: bool = False,
        session: Session | None = None,
        session_id: str | None = None,
        max_records: int = limits.RECORDS_DEFAULT,
        ack_every_ms: int = 0,
        shared: bool = False,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
    ) -> Subscriber:
        """Return a subscriber of the records that are not acknowledged; the caller closes it. See ``Subscriber``.

        Two subscribers that read one partition without a session are both shown its records. Each then warns once of
        the other, by the logger ``fenceline`` and by the other's ``client_name``.

        Args:
            partitions: Left out, all. A subscriber that follows then also reads those that are added, within 60 s. With
                a session it does so once the session owns them.
            initial_position: Where a new subscription begins.
            follow: Never end, and wait for new records.
            isolation: As for ``reader``.
            require_stable: Begin at the mark only once no open transaction has sent an offset for the partition. A
                worker sets it that takes a partition over from another one which uses transactions (KIP-447).
            session: The session that owns the partitions for the group of this name. If another process keeps it, give
                its ``session_id`` instead.
            ack_every_ms: Gather acknowledgements for so long, and send them together; at 0 each is a request of its
                own. After a crash at most the records that were acknowledged within this time are shown again.
            shared: Warn of no other subscriber, because the partitions are meant to be read by several.
            max_delay_ms, idle_delay_ms: As for ``reader``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        from fenceline.client.subscriber import Subscriber

        self.create_subscription(topic, name, initial_position=initial_position)
        new_from: int | None = None
        topic_id: str | None = None
        if partitions is None:
            found = self.topic(topic)
            topic_id = found.topic_id
            partitions = range(found.partitions)
            new_from = len(partitions) if follow else None
        return Subscriber(
            self,
            topic,
            name,
            partitions,
            new_from=new_from,
            is_following=follow,
            isolation=isolation,
            require_stable=require_stable,
            session_id=session_id if session is None else session.session_id,
            max_records=max_records,
            ack_every_ms=ack_every_ms,
            is_shared=shared,
            max_delay_ms=max_delay_ms,
            idle_delay_ms=idle_delay_ms,
            topic_id=topic_id,
        )

    def consumer(
        self,
        topics: str | Sequence[str] | None = None,
        *,
        group: str,
        prefix: str | Sequence[str] | None = None,
        start: InitialPosition = "latest",
        follow: bool = True,
        commit: Commit = "auto",
        commit_every_ms: int = 5_000,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        instance_id: str | None = None,
        session_timeout_ms: int = limits.SESSION_TIMEOUT_MS_DEFAULT,
        rebalance_timeout_ms: int = limits.REBALANCE_TIMEOUT_MS_DEFAULT,
        assignor: str | None = None,
        isolation: Isolation = "read_uncommitted",
        identity: bool = False,
        max_records: int = limits.RECORDS_DEFAULT,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
    ) -> Consumer:
        """Join a group, and return a consumer of its share of the partitions; the caller closes it. See ``Consumer``.

        The group shares out the partitions of all topics that its members name. Members may come and go at any time,
        and each partition is worked on by one of them (KIP-848).

        Args:
            topics: One or several topics. A topic that does not exist yet is read once it does.
            prefix: All topics whose names begin so, also those that come later; next to ``topics``, or instead.
            start: Where the group begins on a topic on which it has committed nothing. It begins a topic that comes
                later at its earliest record, whatever is given here.
            follow: Never end, and wait for new records.
            commit: With ``manual`` only calls of ``Consumer.commit`` commit, or transactions.
            on_assigned: Called with the partitions that the member gets, before their first record.
            on_revoked: Called with partitions that the group moves elsewhere, between two records. Commits of them are
                still taken.
            on_lost: Called with partitions that the group gave to others before this program stopped, such as after a
                long pause. Commits of them are refused.
            instance_id: A name that stays the same over restarts of this worker. Its partitions wait for it, for as
                long as its lease (KIP-345).
            session_timeout_ms: How long the member may be silent, 6000 to 1800000; after that others get its
                partitions.
            rebalance_timeout_ms: How long the work on one record may take while the group wants a partition back,
                1000 to 3600000; after that others get all partitions of this member.
            assignor: ``uniform`` or ``range``; left out, the group's.
            isolation: As for ``reader``.
            identity: As for ``read_subscription``.
            max_delay_ms, idle_delay_ms: As for ``reader``.

        Raises:
            UnsupportedAssignorError: There is no such assignor, or the members of the group use another one.
            InconsistentGroupProtocolError: The group's members speak Kafka's classic protocol.
            GroupMaxSizeReachedError: The group has as many members, or partitions, as a group can have.
        """
        from fenceline.client.consumer.consumer import Consumer
        from fenceline.client.consumer.heartbeats import Joining
        from fenceline.client.consumer.reads import ReadOptions
        from fenceline.client.consumer.share import Options

        joining = Joining(
            group,
            _listed(topics),
            _listed(prefix),
            start,
            instance_id,
            assignor,
            session_timeout_ms,
            rebalance_timeout_ms,
        )
        if joining.topics is None and joining.topic_prefixes is None:
            refuse(WrongValueError, "topics", "given, or prefix: a consumer joins a group to read topics", topics)
        options = Options(
            reading=ReadOptions(follow, isolation, identity, max_records, max_delay_ms, idle_delay_ms),
            commit=commit,
            commit_every_ms=commit_every_ms,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
        return Consumer(self, joining, options)

    def session(self, *, lease_ms: int | None = None) -> Session:
        """Return a new session that renews its own lease; the caller closes it. See ``Session``."""
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
            resources: One name, several, or each with its generation.
            group: Own reading and committing for this group. Left out, a ``topic/partition`` is owned for writing.
            generation: The generation of all resources. An owner of a lower or equal one is severed.
            session: Own under this session. Left out, the owner makes one of ``lease_ms`` and closes it at its end.
            wait_ms: How long to try again while another session owns a resource, or answers are lost; ``None`` tries
                for as long as it takes.
            on_severed: Called once the resources are lost, in the thread that learns of it.
            on_wait: Called once, with the first refusal, when waiting begins.

        Raises:
            ResourceOwnedError: Another session owns a resource, and no generation was given.
            StaleGenerationError: A generation is below the last granted one.
            OutcomeUnknownError: The answer was lost, and the time is over. ``session`` may own some of the resources.
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


def _listed(names: str | Sequence[str] | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names
