"""Attempts: writes of items and small objects that are safe to repeat, with a bound and jitter ("Unanswered attempts").

Rule: only two kinds of writes are repeated here: a conditional write that is decided anew from a fresh read, and a
create of equal bytes. A request that may have been carried out is never reported as refused.

Not here: the retries of appends; see ``append.appender``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, TypeVar

from fenceline import limits
from fenceline.backoff import Backoff
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

T = TypeVar("T")

ATTEMPTS_MAX = 12
BACKOFF = Backoff(first_ms=20, max_ms=1_000)


def no_room(fact: ItemTooLarge, what: str) -> ThrottledError:
    """Return the answer to a change that does not fit. It names no item: the key may be another caller's secret."""
    if isinstance(fact, WriteTooLarge):
        return ThrottledError(f"the request changes too much at once; name fewer partitions or resources: {what}")
    return ThrottledError(
        f"an item would exceed {limits.ITEM_BYTES_MAX} bytes; release or delete some of what it lists, or use "
        f"another session, subscription or topic: {what}"
    )


def pause(runtime: Runtime, failures: int) -> None:
    """Wait before another attempt, after so many that failed."""
    runtime.sleep_ms(BACKOFF.pause_ms(failures, runtime.random()))


class Attempts:
    """Attempts at one change: each entry of the context is an attempt, and it pauses before all but the first one.

    A moved version, a conflict, or a store that fails ends an attempt quietly, so the loop around it makes another one.
    The loop ends with the attempt that reaches its ``return`` or ``break``. ``until_done`` is that loop for one call::

        attempts = Attempts(runtime, "the session")
        while True:
            with attempts:
                ...
                return answer

    A refusal after an unanswered attempt becomes an unknown outcome, because the attempt may have been carried out. A
    loop that recognises its own earlier attempt by what it finds ends with success instead.

    Args:
        is_refusal_final: Whether a refusal is reported even so. That is right if it proves that nothing of an earlier
            attempt is left, or if the caller takes that back first. It is also right if the attempts write nothing of
            what is refused.

    Raises:
        ContendedError: Other processes were faster each time. Nothing was written.
        StoreUnavailableError: The store could not be reached. Nothing was written.
        OutcomeUnknownError: An attempt was not answered, or wrote a part, and none succeeded.
        ThrottledError: An item has no room for the change. Nothing was written.
    """

    def __init__(self, runtime: Runtime, what: str, *, is_refusal_final: bool = False) -> None:
        self._runtime = runtime
        self._what = what
        self._is_refusal_final = is_refusal_final
        self._begun = 0
        self.is_unknown = False  # True once an attempt may have been carried out, even in part
        self._fact: Exception | None = None

    def until_done(self, attempt: Callable[[], T]) -> T:
        """Return what ``attempt`` returns: each call of it is an attempt."""
        while True:
            with self:
                return attempt()

    def __enter__(self) -> None:
        if self._begun == ATTEMPTS_MAX:
            self._give_up()
        if self._begun:
            pause(self._runtime, self._begun)
        self._begun += 1
        self._fact = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, VersionMoved | Conflict | Unavailable | NoAnswer):
            self._fact = error
            self.is_unknown = self.is_unknown or isinstance(error, NoAnswer)
            return True
        if isinstance(error, ItemTooLarge):
            if self.is_unknown:
                what = f"the store did not answer one attempt, and an item has no room for another: {self._what}"
                raise OutcomeUnknownError(f"{what}; look before sending the request again") from error
            raise no_room(error, self._what) from error
        if self.is_unknown and not self._is_refusal_final and isinstance(error, FixError | RetryError):
            detail = (
                f"refused, but the store did not answer an earlier attempt: code={error.code} detail={error.detail}"
            )
            raise OutcomeUnknownError(f"{detail}; look before sending the request again: {self._what}") from error
        return False

    def _give_up(self) -> NoReturn:
        if self.is_unknown:
            what = self._what if self._fact is None else f"{self._what}; {self._fact}"
            raise OutcomeUnknownError(
                f"the store did not answer, and may have made the change; look before sending the request again: {what}"
            )
        if isinstance(self._fact, Unavailable):
            what = f"{self._what}; {self._fact}"
            raise StoreUnavailableError(
                f"the server could not reach a store; send the request again: {what}"
            ) from self._fact
        raise ContendedError(f"other requests changed it first each time; send the request again: {self._what}")
