"""Requests of the clients of `once`, as they are written into the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.model.transaction import OnceMark, ProducerPair
from fenceline.model.transaction import TransactionMember as Member


@dataclass(frozen=True)
class Once:
    """The version that an end raises, and which run of a driver asks for it."""

    app_id: str
    version: int
    note: str


@dataclass(frozen=True)
class Closing:
    """One request that ends several transactions."""

    members: tuple[Member, ...]
    is_commit: bool
    once: Once | None = None
    is_single: bool = False  # by the request that ends one transaction

    def made(self, log: Any) -> Sequence[ProducerPair]:
        once = None if self.once is None else OnceMark(self.once.app_id, self.once.version, self.once.note)
        if self.is_single:
            [member] = self.members
            return [log.transactions.end(*member, self.is_commit, once)]
        return [one.pair for one in log.transactions.end_all(self.members, self.is_commit, once)]


@dataclass(frozen=True)
class Extending:
    """One request for more time."""

    transactional_id: str
    pair: ProducerPair
    timeout_ms: int

    def made(self, log: Any) -> Any:
        return log.transactions.extend(self.transactional_id, self.pair, self.timeout_ms)
