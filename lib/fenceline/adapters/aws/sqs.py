"""A queue of SQS to which messages are sent. Lambda takes the messages.

Rule: a message may arrive twice, so a failed request is repeated once. A second failure is left to the caller, because
a queue may be in another region, which may be away.

Not here: the form of messages (``functions.replication.messages``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fenceline.adapters.aws.client import Failure, make_client
from fenceline.ports import Unavailable

MESSAGES_PER_REQUEST = 10  # SQS refuses a larger request
DELAY_S_MAX = 900  # SQS delays a message for no longer
_TRIES = 2
_CONNECT_MS = 1_000
_ANSWER_MS = 2_000


class SqsQueue:
    """One queue. Safe to share between threads.

    Args:
        url: Its URL.
        region: Its region of AWS; ``None`` is this process's own.
    """

    def __init__(self, url: str, *, region: str | None = None, client: Any = None) -> None:
        self._url = url
        self._region = region
        self._client = client
        self._lock = threading.Lock()

    def send(self, bodies: Sequence[str], *, delay_s: int = 0) -> None:
        """Send messages, which arrive after ``delay_s``, in any order, perhaps twice.

        Raises:
            Unavailable: Some were not sent, or it is not known whether they were.
        """
        for at in range(0, len(bodies), MESSAGES_PER_REQUEST):
            entries = [
                {"Id": str(number), "MessageBody": body, "DelaySeconds": min(delay_s, DELAY_S_MAX)}
                for number, body in enumerate(bodies[at : at + MESSAGES_PER_REQUEST])
            ]
            self._send(entries)

    def _send(self, entries: list[dict[str, Any]]) -> None:
        reason: object = None
        for _ in range(_TRIES):
            try:
                answer = self._sqs().send_message_batch(QueueUrl=self._url, Entries=entries)
            except Failure as error:
                reason = error
                continue
            failed = {entry["Id"]: entry.get("Code") for entry in answer.get("Failed", ())}
            if not failed:
                return
            entries, reason = [entry for entry in entries if entry["Id"] in failed], sorted(set(failed.values()))
        raise Unavailable(f"a queue took no messages; check that it exists: queue={self._url} reason={reason}")

    def _sqs(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = make_client(
                    "sqs",
                    {
                        "sdk": "botocore",
                        "region": self._region,
                        "connect_ms": _CONNECT_MS,
                        "answer_ms": _ANSWER_MS,
                    },
                )
            return self._client
