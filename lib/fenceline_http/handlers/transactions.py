"""Producer ids, coordinators, transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.format.partitioner import coordinator_shard
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import Coordinator, OnceMark, ProducerPair, TopicPartition, TransactionMember
from fenceline_http import responses
from fenceline_http.operations.ends import EndedTransactions, ExtendedTransaction
from fenceline_http.operations.shared import topic_ids
from fenceline_http.request import topic_name
from fenceline_http.responses import Response
from fenceline_http.value_kinds import GROUP, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from fenceline_http.operations.ends import (
        EndTransaction,
        EndTransactions,
        ExtendTransaction,
        OfProducer,
        Once,
        OnceQuery,
    )
    from fenceline_http.operations.transactions import (
        AbortAnywhere,
        AbortTransaction,
        AddGroup,
        AddPartitions,
        OpenTransactionsQuery,
        ProducerIdRequest,
        SendOffsets,
        TransactionList,
    )
    from fenceline_http.request import Request


def _id(request: Request) -> str:
    """Return the path's transactional id.

    Raises:
        InvalidRequestError: No transactional id can be this text.
    """
    return TRANSACTIONAL_ID.of_json(request.parameters["transactional_id"], "transactional_id")


def new_producer_id(request: Request, wanted: ProducerIdRequest) -> Response:
    if wanted.transactional_id is None:
        producer_id, producer_epoch = request.log.producing.new_producer_id()
        return responses.json(ProducerPair(producer_id, producer_epoch))
    pair = None
    if wanted.producer_id is not None and wanted.producer_epoch is not None:
        pair = ProducerPair(wanted.producer_id, wanted.producer_epoch)
    given = request.log.transactions.init(
        wanted.transactional_id, wanted.transaction_timeout_ms, pair, principal=request.principal
    )
    return responses.json(given)


def group_coordinator(request: Request) -> Response:
    return _coordinator(request, GROUP.of_json(request.parameters["key"], "key"))


def transaction_coordinator(request: Request) -> Response:
    return _coordinator(request, TRANSACTIONAL_ID.of_json(request.parameters["key"], "key"))


def _coordinator(request: Request, key: str) -> Response:
    region = request.service.settings.region
    return responses.json(Coordinator(key, coordinator_shard(key), region, request.base_url))


def add_partitions(request: Request, wanted: AddPartitions) -> Response:
    places = [TopicPartition(one.topic, one.partition) for one in wanted.partitions]
    became = request.log.transactions.add_partitions(_id(request), _pair(wanted), places, principal=request.principal)
    return responses.results([(responses.place(*place), error) for place, error in zip(places, became, strict=True)])


def add_group(request: Request, wanted: AddGroup) -> Response:
    request.log.transactions.add_group(_id(request), _pair(wanted), wanted.group, principal=request.principal)
    return responses.empty(204)


def send_offsets(request: Request, wanted: SendOffsets) -> Response:
    offsets = [CommittedOffset(one.topic, one.partition, one.offset, one.metadata) for one in wanted.offsets]
    request.log.transactions.send_offsets(
        _id(request),
        _pair(wanted),
        wanted.group,
        offsets,
        session_id=wanted.session_id,
        member=wanted.member,
        principal=request.principal,
        topic_ids=topic_ids(wanted.offsets),
    )
    return responses.json({})


def end(request: Request, wanted: EndTransaction) -> Response:
    is_commit, once = wanted.result == "commit", _once(wanted.once)
    ended = request.log.transactions.end(_id(request), _pair(wanted), is_commit, once, principal=request.principal)
    return responses.json(ended)


def end_all(request: Request, wanted: EndTransactions) -> Response:
    members = [TransactionMember(one.transactional_id, _pair(one)) for one in wanted.transactions]
    is_commit, once = wanted.result == "commit", _once(wanted.once)
    ended = request.log.transactions.end_all(members, is_commit, once, principal=request.principal)
    return responses.json(EndedTransactions(ended))


def _once(wanted: Once | None) -> OnceMark | None:
    return None if wanted is None else OnceMark(wanted.app_id, wanted.version, wanted.note)


def extend(request: Request, wanted: ExtendTransaction) -> Response:
    expires_at = request.log.transactions.extend(
        _id(request), _pair(wanted), wanted.timeout_ms, principal=request.principal
    )
    return responses.json(ExtendedTransaction(expires_at))


def show_once(request: Request) -> Response:
    return responses.json(request.log.transactions.once(_app_id(request), principal=request.principal))


def list_once(request: Request, wanted: OnceQuery) -> Response:
    page = request.log.transactions.list_once(
        start_after=wanted.start_after, limit=wanted.limit, principal=request.principal
    )
    return responses.listed(page, go_on_after=None)  # A page that is cut goes on after its last one.


def forget_once(request: Request) -> Response:
    request.log.transactions.forget_once(_app_id(request), principal=request.principal)
    return responses.empty(204)


def _app_id(request: Request) -> str:
    return TRANSACTIONAL_ID.of_json(request.parameters["app_id"], "app_id")


def list_transactions(request: Request, wanted: TransactionList) -> Response:
    return _listed(request, wanted, request.principal)


def list_for_operator(request: Request, wanted: TransactionList) -> Response:
    return _listed(request, wanted, "")


def _listed(request: Request, wanted: TransactionList, principal: str) -> Response:
    page = request.log.transactions.list(
        state=wanted.state,
        producer_id=wanted.producer_id,
        longer_than_ms=wanted.longer_than_ms,
        start_after=wanted.start_after,
        limit=wanted.limit,
        principal=principal,
    )
    return responses.listed(page, go_on_after=None)  # A page that is cut goes on after its last one.


def show_transaction(request: Request) -> Response:
    found = request.log.transactions.get(_id(request), principal=request.principal)
    return responses.json(found)


def list_open(request: Request, wanted: OpenTransactionsQuery) -> Response:
    page = request.log.transactions.open_in(request.topic, start_partition=wanted.start_partition, limit=wanted.limit)
    return responses.json(page)


def abort_hanging(request: Request, wanted: AbortTransaction) -> Response:
    request.log.transactions.abort_hanging(*request.partition, _pair(wanted), principal=request.principal)
    return responses.empty(204)


def abort_for_operator(request: Request, wanted: AbortAnywhere) -> Response:
    request.log.transactions.abort_hanging(topic_name(wanted.topic), wanted.partition, _pair(wanted))
    return responses.empty(204)


def fence(request: Request) -> Response:
    return responses.json(request.log.transactions.fence(_id(request)))


def _pair(wanted: OfProducer) -> ProducerPair:
    return ProducerPair(wanted.producer_id, wanted.producer_epoch)
