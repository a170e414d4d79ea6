"""The outcomes of a transaction that was not committed, as far as its producer can know.

Rule: there are three outcomes, and a program does something else after each.

- ``TransactionAbortedError``: no record of the transaction will ever show. The producer can begin another transaction.

- ``errors.ProducerFencedError``: no record of the transaction will ever show, and the producer is fenced for good,
  because another instance has its transactional id, or the transaction was open for longer than its time-out.

- ``CommitOutcomeUnknownError``: a commit was sent, and no answer says whether it was decided.

Each has the service's own error as its ``__cause__``. The two errors here are the client's own, so no answer has their
code.
"""

from __future__ import annotations

from fenceline import errors


class TransactionAbortedError(errors.FencelineError):
    """The transaction failed, and nothing of it will ever be committed. Begin another one.

    The next one may fail in the same way where ``reason`` is a ``FixError`` about its records or offsets.
    """

    code, status, title, next_step = "TRANSACTION_ABORTED", 409, "transaction aborted", "retry"

    @property
    def reason(self) -> BaseException | None:
        """The error by which the transaction failed."""
        return self.__cause__


class CommitOutcomeUnknownError(errors.OutcomeUnknownError):
    """A commit may have been decided, and the client does not know it.

    Attributes:
        is_fenced: The service has refused this instance since, so its own repeats learn nothing more. Look at what the
            transaction would have changed: its records, read committed, or its group's offsets with
            ``require_stable``. Otherwise call ``commit`` again.
    """

    is_fenced: bool


def refusal_in(error: BaseException) -> BaseException:
    """Return the refusal that is the cause of an unknown outcome; otherwise ``error`` itself.

    A refusal after a lost answer says nothing about the lost request, but it is true of the instance.
    """
    if isinstance(error, errors.OutcomeUnknownError) and isinstance(error.__cause__, errors.FencelineError):
        return error.__cause__
    return error
