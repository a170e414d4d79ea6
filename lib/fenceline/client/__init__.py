"""The client: a fenceline service seen from Python, over HTTP.

Rule: it raises the same errors as the service does (errors.py), and each keeps its promise. A request refused by
``fix`` or ``retry`` was not carried out; one whose outcome is unknown is an ``OutcomeUnknownError``. The client holds
nothing that the service does not: closing it, or killing it, loses only what was not yet acknowledged.

The modules that carry records are loaded when they are first used, so that a program that only looks does not load
their codec. The names in ``__all__`` are public as names of ``fenceline``; the modules of this package are not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fenceline.client.client import Client
    from fenceline.client.consumer.consumer import Consumer
    from fenceline.client.delivery import Delivered, Delivery
    from fenceline.client.failover import FailoverSubscriber, subscribe_with_failover
    from fenceline.client.owner import Owner
    from fenceline.client.producer import Producer
    from fenceline.client.reader import Reader
    from fenceline.client.session import Session
    from fenceline.client.subscriber import Subscriber
    from fenceline.client.transactions.errors import CommitOutcomeUnknownError, TransactionAbortedError
    from fenceline.client.transactions.open import OpenTransaction
    from fenceline.client.transactions.producer import TransactionalProducer
    from fenceline.client.types import CommittedOffset

__all__ = [
    "Client",
    "CommitOutcomeUnknownError",
    "CommittedOffset",
    "Consumer",
    "Delivered",
    "Delivery",
    "FailoverSubscriber",
    "OpenTransaction",
    "Owner",
    "Producer",
    "Reader",
    "Session",
    "Subscriber",
    "TransactionAbortedError",
    "TransactionalProducer",
    "subscribe_with_failover",
]

_MODULES = {
    "Client": "client",
    "CommitOutcomeUnknownError": "transactions.errors",
    "CommittedOffset": "types",
    "Consumer": "consumer.consumer",
    "Delivered": "delivery",
    "Delivery": "delivery",
    "FailoverSubscriber": "failover",
    "OpenTransaction": "transactions.open",
    "Owner": "owner",
    "Producer": "producer",
    "Reader": "reader",
    "Session": "session",
    "Subscriber": "subscriber",
    "TransactionAbortedError": "transactions.errors",
    "TransactionalProducer": "transactions.producer",
    "subscribe_with_failover": "failover",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"fenceline.client.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
