"""The ends of transactions: of one, or of several by one decision, with ``once`` or not; and the extension of a
time-out.

Rule: the common part of a producer's requests is declared here: its pair, and the errors by which the pair is past.

Not here: what is in a transaction (``transactions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fenceline import limits
from fenceline.answers import Stated
from fenceline.model.transaction import OnceMark, OncePage, ProducerPair, TransactionMember
from fenceline_http import strict_json
from fenceline_http.operations.shared import LIMIT_TEXT, STORES, WRITES
from fenceline_http.request_schema import Body, Members, Query, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import TEXT, TRANSACTIONAL_ID, Kind, choice, integer, list_of, refuse, size

TRANSACTIONS = "/v1/transactions"
TRANSACTION = f"{TRANSACTIONS}/{{transactional_id}}"
_ONCE_OF = "/v1/once/{app_id}"
PRODUCER_EPOCH = integer(0, limits.MARKER_EPOCH_MAX)


class OfProducer(Members):
    """The pair of the producer whose transaction it is."""

    producer_id: int = required(integer())
    producer_epoch: int = required(PRODUCER_EPOCH)


def _note(value: object, field: str) -> str:
    text = TEXT.of_json(value, field)
    if not strict_json.is_text(text) or len(text.encode()) > limits.ONCE_NOTE_BYTES_MAX:
        refuse(field, f"text of at most {limits.ONCE_NOTE_BYTES_MAX} bytes")
    return text


class Once(Members):
    """A version that an application commits once: it is raised with the outcome, and refused where it is not higher."""

    app_id: str = required(TRANSACTIONAL_ID)
    version: int = required(integer())
    note: str | None = optional(Kind(_note, {"type": "string", "maxLength": limits.ONCE_NOTE_BYTES_MAX}))


class OnceQuery(Query):
    """Some of the versions that applications have committed."""

    start_after: str = optional(TEXT, "Continue after this application.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


_RESULT = choice(("commit", "abort"))
_ONCE = object_of(Once)


class EndTransaction(OfProducer, Body):
    """How a transaction is to end."""

    result: str = required(_RESULT)
    once: Once | None = optional(_ONCE)


class EndedMember(OfProducer):
    """One of several transactions, with its producer's pair."""

    transactional_id: str = required(TRANSACTIONAL_ID)


class EndTransactions(Body):
    """How several transactions are to end: all of them, or none."""

    transactions: Sequence[EndedMember] = required(
        list_of(
            object_of(EndedMember, is_named=False), 0, limits.TRANSACTIONS_PER_END_MAX, of="transactions, each once"
        ),
        "None of them only raises `once`.",
    )
    result: str = required(_RESULT)
    once: Once | None = optional(_ONCE)

    def check(self) -> None:
        if not self.transactions and self.once is None:
            refuse("transactions", f"a list of 1 to {limits.TRANSACTIONS_PER_END_MAX} transactions without once")
        seen = set()
        for index, one in enumerate(self.transactions):
            if one.transactional_id in seen:
                refuse(f"transactions[{index}].transactional_id", "named once in a request")
            seen.add(one.transactional_id)


class ExtendTransaction(OfProducer, Body):
    """For how long a transaction may stay open from now on."""

    timeout_ms: int = required(integer(1, limits.EXTENSION_MS_MAX))


# Answers


class EndedTransactions(NamedTuple):
    """The pair of each transaction's producer for the next one."""

    transactions: Annotated[Sequence[TransactionMember], Stated(maxItems=limits.TRANSACTIONS_PER_END_MAX)]


class ExtendedTransaction(NamedTuple):
    """Until when a transaction may stay open."""

    expires_at: int


ID_EXAMPLE = "loader-1"
_APP_EXAMPLE = "hourly-totals"
PAIR_EXAMPLE = {"producer_id": 1_001, "producer_epoch": 0}
_NEXT = ProducerPair(1_001, 1)

OF_PRODUCER = ("INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS")

ROUTES = (
    Route(
        "POST",
        f"{TRANSACTION}/end",
        "transactions.end",
        operation="endTransaction",
        tag="Transactions",
        summary="Commit or abort",
        description="Commits or aborts a transaction. The answer has the producer id and the epoch for the next one. "
        "What was committed is in every `read_committed` read that begins after the answer.",
        takes=EndTransaction,
        answers={200: _NEXT},
        codes=(*WRITES, *OF_PRODUCER, "INVALID_TXN_STATE", "ALREADY_COMMITTED"),
        body={**PAIR_EXAMPLE, "result": "commit"},
    ),
    Route(
        "POST",
        f"{TRANSACTIONS}/end",
        "transactions.end_all",
        operation="endTransactions",
        tag="Transactions",
        summary="Commit or abort several transactions at once",
        description="Commits or aborts up to 96 transactions by one decision: all of them, or none. With `once`, an "
        "application's version is raised together with it. A version that is not higher is refused, and nothing "
        "changes.",
        takes=EndTransactions,
        answers={200: EndedTransactions([TransactionMember(ID_EXAMPLE, _NEXT)])},
        codes=(*WRITES, *OF_PRODUCER, "INVALID_TXN_STATE", "ALREADY_COMMITTED"),
        body={
            "transactions": [{"transactional_id": ID_EXAMPLE, **PAIR_EXAMPLE}],
            "result": "commit",
            "once": {"app_id": _APP_EXAMPLE, "version": 7, "note": "run-2"},
        },
    ),
    Route(
        "POST",
        f"{TRANSACTION}/extend",
        "transactions.extend",
        operation="extendTransaction",
        tag="Transactions",
        summary="Keep a transaction open for longer",
        description="Moves the time-out of a transaction that is under way: it is not due for `timeout_ms` from now. "
        "It only moves later.",
        takes=ExtendTransaction,
        answers={200: ExtendedTransaction(1_700_000_060_000)},
        codes=(*WRITES, *OF_PRODUCER, "INVALID_TXN_STATE"),
        body={**PAIR_EXAMPLE, "timeout_ms": 60_000},
    ),
    Route(
        "GET",
        "/v1/once",
        "transactions.list_once",
        operation="listOnce",
        tag="Transactions",
        summary="List the versions that applications have committed",
        description="Lists the last version of each application that has raised one by `once`, by application. Those "
        "of other principals are left out.",
        takes=OnceQuery,
        answers={200: OncePage([OnceMark(_APP_EXAMPLE, 7, "run-2", 1_700_000_000_000)], has_more=False)},
        codes=("STORE_UNAVAILABLE",),
        query={"limit": 10},
    ),
    Route(
        "GET",
        _ONCE_OF,
        "transactions.show_once",
        operation="getOnce",
        tag="Transactions",
        summary="Show the version that an application has committed",
        description="Shows the last version that an application has raised by `once`, or -1 if it has raised none.",
        answers={200: OnceMark(_APP_EXAMPLE, 7, "run-2", 1_700_000_000_000)},
        codes=(*STORES, "CONTENDED"),
    ),
    Route(
        "DELETE",
        _ONCE_OF,
        "transactions.forget_once",
        operation="forgetOnce",
        tag="Transactions",
        summary="Forget what an application has committed",
        description="Forgets the version of an application, so that it may commit any version again. Twice does no "
        "harm.",
        answers={204: None},
        codes=WRITES,
    ),
)
