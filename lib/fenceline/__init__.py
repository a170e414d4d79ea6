"""A serverless, partitioned log on object storage, with writers and readers that can be fenced.

``from fenceline import Client, Record, errors`` is all that most callers need. A name is imported when it is first
asked for, so a function that only appends does not load the client's transport.

Public, and kept as they are:

- The names in ``__all__`` here, with their public methods, and what these take and return; the classes of ``errors``.

- The fixtures and names in ``__all__`` of ``fenceline_testing``.

- The command line ``fenceline``: commands, options, exit codes, and what ``--json`` prints.

- The HTTP API, as the contract states it.

- The format ``fenceline`` on Spark, and ``fenceline_spark.jobs``.

- The settings of a deployment, and all that is stored.

Everything else may move or change with any version: the modules of this package, ``fenceline_http``,
``fenceline_cli`` and ``functions``.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from fenceline import errors as errors
    from fenceline.client import Client as Client
    from fenceline.client import CommitOutcomeUnknownError as CommitOutcomeUnknownError
    from fenceline.client import CommittedOffset as CommittedOffset
    from fenceline.client import Consumer as Consumer
    from fenceline.client import Delivered as Delivered
    from fenceline.client import Delivery as Delivery
    from fenceline.client import FailoverSubscriber as FailoverSubscriber
    from fenceline.client import OpenTransaction as OpenTransaction
    from fenceline.client import Owner as Owner
    from fenceline.client import Producer as Producer
    from fenceline.client import Reader as Reader
    from fenceline.client import Session as Session
    from fenceline.client import Subscriber as Subscriber
    from fenceline.client import TransactionAbortedError as TransactionAbortedError
    from fenceline.client import TransactionalProducer as TransactionalProducer
    from fenceline.client import subscribe_with_failover as subscribe_with_failover
    from fenceline.model.kinds import Isolation as Isolation
    from fenceline.model.record import Record as Record
    from fenceline.model.requests import PollPosition as PollPosition
    from fenceline.model.results import Appended as Appended
    from fenceline.model.results import Page as Page
    from fenceline.model.results import ProducerRef as ProducerRef
    from fenceline.model.results import ReadRecord as ReadRecord
    from fenceline.model.results import SessionRef as SessionRef
    from fenceline.model.transaction import OnceMark as OnceMark
    from fenceline.model.transaction import ProducerPair as ProducerPair
    from fenceline.model.transaction import TopicPartition as TopicPartition
    from fenceline.model.transaction import TransactionMember as TransactionMember

    __version__: str
    subscribe = subscribe_with_failover  # its older name, which warns

__all__ = [
    "Appended",
    "Client",
    "CommitOutcomeUnknownError",
    "CommittedOffset",
    "Consumer",
    "Delivered",
    "Delivery",
    "FailoverSubscriber",
    "Isolation",
    "OnceMark",
    "OpenTransaction",
    "Owner",
    "Page",
    "PollPosition",
    "Producer",
    "ProducerPair",
    "ProducerRef",
    "ReadRecord",
    "Reader",
    "Record",
    "Session",
    "SessionRef",
    "Subscriber",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionMember",
    "TransactionalProducer",
    "__version__",
    "errors",
    "subscribe_with_failover",
]


def __getattr__(name: str) -> _Any:
    match name:
        case "__version__":
            return _import_module("importlib.metadata").version("fenceline-log")
        case "errors":
            return _import_module("fenceline.errors")
        case "Record":
            return _import_module("fenceline.model.record").Record
        case "Isolation":
            return _import_module("fenceline.model.kinds").Isolation
        case "PollPosition":
            return _import_module("fenceline.model.requests").PollPosition
        case "Appended" | "Page" | "ProducerRef" | "ReadRecord" | "SessionRef":
            return getattr(_import_module("fenceline.model.results"), name)
        case "OnceMark" | "ProducerPair" | "TopicPartition" | "TransactionMember":
            return getattr(_import_module("fenceline.model.transaction"), name)
        case "subscribe":
            _import_module("warnings").warn(
                "fenceline.subscribe is named subscribe_with_failover, because Client.subscribe does not fail over; "
                "use the new name: the old one goes with the next version",
                DeprecationWarning,
                stacklevel=2,
            )
            name = "subscribe_with_failover"
    if name in __all__:
        return getattr(_import_module("fenceline.client"), name)
    raise AttributeError(f"module 'fenceline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
