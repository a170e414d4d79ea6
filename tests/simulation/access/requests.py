"""Requests of clients of exclusive access, as a history prints them, and their grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.requests import ClaimRequest
from tests.simulation.harness.history import Attempt


@dataclass(frozen=True)
class Sending(Attempt):
    """An attempt under a session, or under none."""

    session: tuple[str, int] | None = None  # session id, topic epoch
    mode: str = SHARED  # mode of the grant

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.session is None else f"{text} session={self.session[0][:6]}/{self.session[1]} {self.mode}"


@dataclass(frozen=True)
class Claim:
    """A claim, as it was sent."""

    access_mode: str
    partitions: tuple[int, ...]
    session_id: str | None = None
    lease_ms: int | None = None
    topic_epochs: Mapping[int, int] | None = None
    wait_ms: int = 0

    @property
    def mode(self) -> str:
        return SHARED if self.access_mode == SHARED else EXCLUSIVE

    @property
    def request(self) -> ClaimRequest:
        return ClaimRequest(
            self.access_mode,
            self.partitions,
            session_id=self.session_id,
            lease_ms=self.lease_ms,
            topic_epochs=self.topic_epochs,
            wait_ms=self.wait_ms,
        )

    def __str__(self) -> str:
        session = "" if self.session_id is None else f" session={self.session_id[:6]}"
        epochs = "" if self.topic_epochs is None else f" epochs={dict(self.topic_epochs)}"
        return f"{self.access_mode} {list(self.partitions)}{session}{epochs} lease={self.lease_ms} wait={self.wait_ms}"


@dataclass(frozen=True)
class Own:
    """A request to own, or to release."""

    session_id: str
    resources: tuple[tuple[str, int | None], ...]
    group: str | None = None

    def __str__(self) -> str:
        asked = " ".join(f"{name}:{generation}" for name, generation in self.resources)
        return f"session={self.session_id[:6]} group={self.group} {asked}"


@dataclass(frozen=True)
class Grant:
    """Write access as it was answered to a client."""

    session_id: str
    mode: str
    epochs: Mapping[int, int]
    producer_name: str = ""  # empty for an owner

    @property
    def partitions(self) -> list[int]:
        return sorted(self.epochs)
