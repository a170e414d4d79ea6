"""Trying again: item writes and small objects that are safe to repeat, with a bound and jitter.

The rule: only what may be repeated is repeated here: a conditional write whose loser reads again, or a create of equal
bytes. Appends have a loop of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from fenceline import limits
from fenceline.errors import (
    ContendedError,
    FixError,
    OutcomeUnknownError,
    RetryError,
    StoreUnavailableError,
    ThrottledError,
)
from fenceline.ports import Conflict, ItemTooLarge, NoAnswer, Unavailable, VersionMoved, WriteTooLarge
from fenceline.runtime import Runtime

ATTEMPTS_MAX = 12
PAUSE_MS_MAX = 1_000


def no_room(fact: ItemTooLarge, what: str) -> ThrottledError:
    """Return the answer to a change that does not fit; it names no item, whose key may be another's secret."""
    if isinstance(fact, WriteTooLarge):
        return ThrottledError(f"too much is changed at once; name fewer partitions or resources: {what}")
    return ThrottledError(
        f"an item has reached the {limits.ITEM_BYTES_MAX} bytes that one may have; release or delete some of what it "
        f"lists, or use another session, subscription or topic: {what}"
    )


def pause(runtime: Runtime, attempt: int, first_ms: int = 10) -> None:
    """Wait before another attempt: up to ``first_ms`` doubled each time, all of it jitter."""
    runtime.sleep_ms(runtime.random() * min(first_ms * 2**attempt, PAUSE_MS_MAX))


class Attempts:
    """Iterate over attempts; one that ends in a store fact which asks for it is followed by another.

    What may have been carried out is never told as refused: a refusal behind an attempt that was not answered is an
    unknown outcome. A loop that knows better, since it tells its own attempts by what it finds, succeeds instead.

    Args:
        is_refusal_final: Whether a refusal is told all the same: where it proves that nothing of an earlier attempt
            stands, where its caller first takes that back, or where the attempts write nothing of what is refused.

    Raises:
        ContendedError: Rivals won each. Nothing was written.
        StoreUnavailableError: The store could not be reached. Nothing was written.
        OutcomeUnknownError: An attempt was not answered, or wrote a part, and none succeeded.
        ThrottledError: An item has no room for the change. Nothing was written.
    """

    def __init__(self, runtime: Runtime, what: str, *, is_refusal_final: bool = False) -> None:
        self._runtime = runtime
        self._what = what
        self._is_refusal_final = is_refusal_final
        self._is_done = False
        self.is_unknown = False  # whether an attempt may have been carried out, or a part of it was
        self._fact: Exception | None = None

    def __iter__(self) -> Iterator[Attempts]:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                pause(self._runtime, attempt)
            yield self
            if self._is_done:
                return
        if self.is_unknown:
            what = self._what if self._fact is None else f"{self._what}; {self._fact}"
            raise OutcomeUnknownError(f"the store did not answer; look before sending it again: {what}")
        if isinstance(self._fact, Unavailable):
            what = f"{self._what}; {self._fact}"
            raise StoreUnavailableError(f"the store could not be reached; send it again: {what}") from self._fact
        raise ContendedError(f"others changed it each time; send it again: {self._what}")

    def __enter__(self) -> None:
        self._fact = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_done = error is None
        if isinstance(error, VersionMoved | Conflict | Unavailable | NoAnswer):
            self._fact = error
            self.is_unknown = self.is_unknown or isinstance(error, NoAnswer)
            return True
        if isinstance(error, ItemTooLarge):
            if self.is_unknown:
                what = f"an attempt was not answered, and an item has no room for another: {self._what}"
                raise OutcomeUnknownError(f"{what}; look before sending it again") from error
            raise no_room(error, self._what) from error
        if self.is_unknown and not self._is_refusal_final and isinstance(error, FixError | RetryError):
            detail = f"refused, but an earlier attempt was not answered: code={error.code} detail={error.detail}"
            raise OutcomeUnknownError(f"{detail}; look before sending it again: {self._what}") from error
        return False
