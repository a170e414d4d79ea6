"""Requests about transactions (contract, "Producer ids, coordinators, transactions").

Rule: each method is a single request, and keeps no state between two of them. Each may be retried after a lost answer,
because the service knows a repeat by its producer id and epoch. A request is retried for ``retry_ms``, and its last try
is over by then, too, even if it hangs.

Not here: ``Client.transactional_producer``, which begins and ends transactions by these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from fenceline import limits
from fenceline.answers import parse
from fenceline.client.calls import public
from fenceline.client.problems import error_in
from fenceline.client.requests.base import Answer, Requests, given, part, topic_path
from fenceline.client.requests.subscriptions import offset_entries
from fenceline.client.types import CommittedOffset, Coordinator
from fenceline.errors import OperationNotAttemptedError
from fenceline.model.transaction import (
    FencedTransaction,
    OnceMark,
    OpenTransaction,
    ProducerPair,
    ShownProducerState,
    TopicPartition,
    Transaction,
    TransactionMember,
)

Result = Literal["commit", "abort"]


@public
class TransactionRequests(Requests):
    """The part of ``Client`` that is about transactions, their producers and their coordinators."""

    def coordinator(self, kind: Literal["group", "transaction"], key: str) -> Coordinator:
        """Return the place that serves a group, or a transactional id (FIND_COORDINATOR)."""
        return parse(Coordinator, self._call("GET", f"/v1/coordinators/{kind}/{part(key)}", "none"))

    def transactional_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = limits.TRANSACTION_TIMEOUT_MS_DEFAULT,
        pair: ProducerPair | None = None,
        retry_ms: int | None = None,
    ) -> ProducerPair:
        """Return the producer id of a transactional id, and an epoch that no instance had (INIT_PRODUCER_ID).

        Every instance that got an earlier epoch is fenced from now on. A transaction that one of them left open is
        aborted first; one whose end was decided is finished first.

        Args:
            timeout_ms: How long each transaction may stay open, 1 to 900000; after that it is aborted.
            pair: The pair that the caller still has. The service then refuses unless it is the present one (KIP-360).

        Raises:
            ProducerFencedError: ``pair`` is no longer the present one.
            InvalidTransactionTimeoutError: ``timeout_ms`` is out of its bounds.
            ConcurrentTransactionsError: The service is still finishing the last transaction.
        """
        body = given(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=None if pair is None else pair.producer_id,
            producer_epoch=None if pair is None else pair.producer_epoch,
        )
        # An epoch whose answer was lost is never used, and the same pair is answered the same, so a refusal is true.
        return parse(ProducerPair, self._call("POST", "/v1/producer-ids", "none", body=body, within_ms=retry_ms))

    def add_partitions_to_transaction(
        self,
        transactional_id: str,
        pair: ProducerPair,
        partitions: Iterable[TopicPartition],
        *,
        retry_ms: int | None = None,
    ) -> None:
        """Name up to 500 partitions that the transaction will write to, all of them or none (ADD_PARTITIONS_TO_TXN).

        Raises:
            UnknownTopicOrPartitionError, NotAuthorizedError: One partition was refused; none was added.
            ProducerFencedError: Another instance came after this one, or the transaction's time was over.
        """
        entries = [{"topic": topic, "partition": partition} for topic, partition in partitions]
        body = {**pair._asdict(), "partitions": entries}
        answer = self._call("POST", _path(transactional_id, "partitions"), "repeatable", body=body, within_ms=retry_ms)
        refusals = [error_in(result["error"]) for result in answer["results"] if result.get("error") is not None]
        refusals.sort(key=lambda error: isinstance(error, OperationNotAttemptedError))
        if refusals:
            raise refusals[0]  # the one that the others were not attempted for

    def add_group_to_transaction(
        self, transactional_id: str, pair: ProducerPair, group: str, *, retry_ms: int | None = None
    ) -> None:
        """Name a group whose offsets the transaction will move (ADD_OFFSETS_TO_TXN).

        Raises:
            ProducerFencedError: Another instance came after this one, or the transaction's time was over.
        """
        body = {**pair._asdict(), "group": group}
        path = _path(transactional_id, "groups")
        self._transport.request("POST", path, effect="repeatable", body=body, within_ms=retry_ms)

    def send_offsets_to_transaction(
        self,
        transactional_id: str,
        pair: ProducerPair,
        group: str,
        offsets: Iterable[CommittedOffset],
        *,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
        retry_ms: int | None = None,
    ) -> None:
        """Send 1 to 32 offsets of an added group, which take effect if the transaction commits (TXN_OFFSET_COMMIT).

        Args:
            member_id, member_epoch: Send them as this member of the group, which holds the partitions (KIP-447).

        Raises:
            OwnerFencedError, SessionSeveredError, SessionExpiredError: The session does not own one of the partitions
                for this group. Nothing was sent.
            StaleMemberEpochError, UnknownMemberIdError: The member does not hold one of the partitions, or the group
                has members and none was named. Nothing was sent.
            OffsetOutOfRangeError: An offset is beyond the log. Nothing was sent.
            InvalidTxnStateError: No transaction is open that this group was added to.
        """
        sent_by = given(group=group, session_id=session_id, member_id=member_id, member_epoch=member_epoch)
        body = {**pair._asdict(), **sent_by, "offsets": offset_entries(offsets)}
        path = _path(transactional_id, "offsets")
        self._transport.request("POST", path, effect="repeatable", body=body, within_ms=retry_ms)

    def extend_transaction(
        self, transactional_id: str, pair: ProducerPair, timeout_ms: int, *, retry_ms: int | None = None
    ) -> int:
        """Let the time-out of the open transaction not be due for ``timeout_ms``; return until when, in ms.

        Args:
            timeout_ms: 1 to 86400000, from now on. A time that is earlier than an earlier request's changes nothing.

        Raises:
            ProducerFencedError: Another instance came after this one, or the transaction's time was over.
            InvalidTxnStateError: No transaction is open.
        """
        body = {**pair._asdict(), "timeout_ms": timeout_ms}
        # Sent twice, the request moves the same time. A refusal is true, because it says that the pair is not in force.
        answer = self._call("POST", _path(transactional_id, "extend"), "none", body=body, within_ms=retry_ms)
        return int(answer["expires_at"])

    def end_transaction(
        self,
        transactional_id: str,
        pair: ProducerPair,
        result: Result,
        *,
        once: OnceMark | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> ProducerPair:
        """Commit or abort, and return the pair of the next transaction (END_TXN).

        The answer comes once every marker is durable and every offset has taken effect. The same request sent again is
        answered the same, until the next transaction begins.

        Args:
            once: A version that is raised together with the outcome; see ``end_transactions``.

        Raises:
            ProducerFencedError: Another instance came after this one, or the transaction's time was over. This request
                decided nothing.
            AlreadyCommittedError: The version of ``once``, or a higher one, is committed.
            OutcomeUnknownError: An answer was lost. If the service refused a later try, that refusal is the cause.
        """
        body = {**pair._asdict(), **given(result=result, once=_once(once))}
        path = _path(transactional_id, "end")
        answer = self._call("POST", path, "ends", body=body, within_ms=retry_ms, timeout_ms=timeout_ms)
        return parse(ProducerPair, answer)

    def end_transactions(
        self,
        members: Iterable[TransactionMember],
        result: Result,
        *,
        once: OnceMark | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Sequence[TransactionMember]:
        """Commit or abort up to 96 transactions by one decision: all of them, or none. Return the next pair of each.

        A member without an open transaction is passed over, and keeps its pair. The answer comes as that of
        ``end_transaction``.

        Args:
            members: Each transactional id once. None of them only raises ``once``.
            once: A version of an application, which must be above its last one. The same decision raises it, so that
                one run succeeds of several that commit the same version.

        Raises:
            AlreadyCommittedError: That version, or a higher one, is committed: ``version``, and the ``note`` of the
                run that committed it. After a lost answer that may be an earlier sending of this request.
            ProducerFencedError, InvalidProducerIdMappingError, InvalidTxnStateError: Of the member
                ``transactional_id``. This request decided nothing.
            OutcomeUnknownError: An answer was lost. If the service refused a later try, that refusal is the cause.
        """
        entries = [{"transactional_id": name, **pair._asdict()} for name, pair in members]
        body = given(transactions=entries, result=result, once=_once(once))
        answer = self._call(
            "POST", "/v1/transactions/end", "ends", body=body, within_ms=retry_ms, timeout_ms=timeout_ms
        )
        return [parse(TransactionMember, one) for one in answer["transactions"]]

    def once(self, app_id: str) -> OnceMark:
        """Return the version that an application has committed by ``once``; its ``version`` is -1 if there is none."""
        return parse(OnceMark, self._call("GET", _once_path(app_id), "none"))

    def once_versions(self) -> Iterator[OnceMark]:
        """Yield the version of each application that has committed one by ``once``, by application.

        Those of other principals are left out.
        """
        yield from map(partial(parse, OnceMark), self._listed("/v1/once", "versions", "app_id"))

    def forget_once(self, app_id: str) -> None:
        """Forget an application's committed version, so that it may commit any version again, an earlier one, too."""
        self._transport.request("DELETE", _once_path(app_id), effect="repeatable")

    def transaction(self, transactional_id: str) -> Transaction:
        """Return the transaction of an id as it is now, after ending what was due.

        Raises:
            TransactionalIdNotFoundError: No producer has had this id, or it expired.
        """
        return parse(Transaction, self._call("GET", _path(transactional_id), "none"))

    def transactions(
        self,
        *,
        state: str | None = None,
        producer_id: int | None = None,
        longer_than_ms: int | None = None,
        start_after: str | None = None,
        as_operator: bool = False,
    ) -> Iterator[Transaction]:
        """Yield the transaction of every transactional id that the caller may use, by id in byte order.

        Args:
            state: Only those in this state, such as ``Ongoing``.
            producer_id: Only that of this producer.
            longer_than_ms: Only those that have been open for longer.
            start_after: Only the ids after this one.
            as_operator: Yield those of all principals, by the operators' route.
        """
        params = {"state": state, "producer_id": producer_id, "longer_than_ms": longer_than_ms}

        path = "/v1/operator/transactions" if as_operator else "/v1/transactions"
        found = self._listed(path, "transactions", "transactional_id", params, start_after=start_after)
        yield from map(partial(parse, Transaction), found)

    def producer_states(self, topic: str, partition: int) -> Iterator[ShownProducerState]:
        """Yield a partition's state of each producer that wrote to it, by producer id (DESCRIBE_PRODUCERS)."""

        def last_id(page: Answer) -> str:
            return str(page["producers"][-1]["producer_id"])

        for page in self._pages(topic_path(topic, partition) + "/producer-states", last_id):
            yield from map(partial(parse, ShownProducerState), page["producers"])

    def open_transactions(self, topic: str) -> Iterator[OpenTransaction]:
        """Yield the transactions that are open in the partitions of a topic, by partition and by first offset.

        The first one of a partition holds its last stable offset. One that ``is_hanging`` is open although no
        transactional id can end it: look at what it wrote, then call ``abort_hanging_transaction``.
        """
        start_partition = 0
        while True:
            params = {"start_partition": start_partition}
            page = self._call("GET", topic_path(topic) + "/open-transactions", "none", params=params)
            yield from map(partial(parse, OpenTransaction), page["transactions"])
            if not page["has_more"]:
                return
            start_partition = page["next_partition"]

    def fence_transactional_id(self, transactional_id: str) -> FencedTransaction:
        """Abort the open transaction of an id of any principal, fence its producer, and leave the id without a
        principal.

        This is an operators' route. For an id of the caller's own, ``transactional_producer_id`` does the same, and the
        id keeps its principal.

        Raises:
            TransactionalIdNotFoundError: No producer has had this id, or it expired.
            OutcomeUnknownError: The answer was lost. Look at the transaction first: another call fences the producer
                that has the id by then.
        """
        path = f"/v1/operator/transactions/{part(transactional_id)}/fence"
        answer = self._call("POST", path, "once")
        return parse(FencedTransaction, answer)

    def abort_hanging_transaction(
        self, topic: str, partition: int, pair: ProducerPair, *, as_operator: bool = False
    ) -> None:
        """End a transaction in this partition that no coordinator knows any longer, as aborted (WRITE_TXN_MARKERS).

        Args:
            as_operator: Also one of another principal's id, by the operators' route.

        Raises:
            NotAuthorizedError: The producer id was given to another principal's transactional id.
            InvalidTxnStateError: It is not open here with this epoch, or its coordinator still knows it: then its
                time-out ends it, or ``transactional_producer_id`` of its id.
        """
        path, body = topic_path(topic, partition) + "/abort-transaction", pair._asdict()
        if as_operator:
            path, body = "/v1/operator/abort-transaction", {"topic": topic, "partition": partition, **body}
        self._transport.request("POST", path, effect="repeatable", body=body)


def _path(transactional_id: str, what: str | None = None) -> str:
    path = f"/v1/transactions/{part(transactional_id)}"
    return path if what is None else f"{path}/{what}"


def _once(mark: OnceMark | None) -> dict[str, Any] | None:
    return None if mark is None else given(app_id=mark.app_id, version=mark.version, note=mark.note)


def _once_path(app_id: str) -> str:
    return f"/v1/once/{part(app_id)}"
