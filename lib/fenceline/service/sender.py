"""Sending a prepared batch to its partition's appender: its session first, and its admission where that is asked for.

The rule: the appender judges by the log; what it cannot know (whose the session is, whether it was severed, whether an
exclusive session that the log names has ended) is asked of the items here, beside the queue, so that nobody waits for
another's admission.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fenceline.access.admission import admit
from fenceline.access.fencing import AppenderOf
from fenceline.access.session_cache import Grants
from fenceline.append.appender import Appender
from fenceline.append.checks import AdmitFirst, SessionStatus
from fenceline.append.request import BatchEntry
from fenceline.errors import ProducerBusyError, ProducerFencedError, SessionExpiredError
from fenceline.log.context import Context
from fenceline.log.tail import verified_tail
from fenceline.model.results import Appended, SessionRef


class Sent(NamedTuple):
    """Under what a batch was sent, and until when, on the monotonic clock."""

    session: SessionRef | None
    principal: str
    until_ms: int


class Sender:
    """What one process needs to send batches."""

    def __init__(self, context: Context, appender_of: AppenderOf) -> None:
        self._context = context
        self._appender_of = appender_of
        self.grants = Grants(context, appender_of)

    def send(self, appender: Appender, entry: BatchEntry, sent: Sent) -> Appended:
        """Append a batch under the session that it names, or under none.

        Raises:
            UnknownSessionError, NotAuthorizedError, SessionSeveredError, ProducerFencedError, SessionExpiredError: It
                may not write here. Nothing was written.
            ProducerBusyError: It has no session, and somebody else's is exclusive here. Nothing was written.
            FencelineError, StaleTopicId: As ``Appender.append``.
            Unavailable: The item store could not be asked. Nothing was written.
        """
        ref = sent.session
        if ref is None:
            return self._append(appender, entry, sent)
        partition, grants = appender.partition, self.grants
        status, is_new = grants.status(ref, partition, sent.principal)
        grants.hold_back(ref.session_id, sent.until_ms)
        try:
            answer = self._append(appender, _under(entry, status), sent)
        except (ProducerFencedError, SessionExpiredError):
            # Only a fresh look tells a severed session from a fenced one, or that it was granted something since.
            fresh = status if is_new else grants.look(ref, partition, sent.principal)
            if fresh == status:
                raise
            answer = self._append(appender, _under(entry, fresh), sent)
        grants.renew(ref, partition)
        return answer

    def _append(self, appender: Appender, entry: BatchEntry, sent: Sent) -> Appended:
        while True:
            answer = appender.append(entry, sent.until_ms)
            if isinstance(answer, AdmitFirst):
                try:
                    ended = admit(self._context, appender.partition, answer, self._appender_of)
                except ProducerBusyError:
                    state = verified_tail(appender.partition).state
                    if (state.session_id, state.topic_epoch) == (answer.session_id, answer.topic_epoch):
                        raise
                    continue  # I4: only an old memory named that session
                entry = replace(entry, terms=entry.terms._replace(ended=ended))
                continue
            assert isinstance(answer, Appended)
            return answer


def _under(entry: BatchEntry, status: SessionStatus) -> BatchEntry:
    return replace(entry, terms=entry.terms._replace(session=status))
