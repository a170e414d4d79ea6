"""The options of a write, and what contradicts what (``README.md`` has the table for people).

Rule: all are judged before anything is written. An option that would have no effect beside another is refused, too.

Not here: whether topics and partitions exist; see ``placing``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format.batch import Codec
from fenceline.format.compression import CODECS
from fenceline.model.topic import LEGAL_NAME
from fenceline.model.transaction import check_transactional_id
from fenceline_spark import options
from fenceline_spark.options import Option

COMMIT_TIMEOUT_MS_MAX = 86_400_000
INLINE_BYTES_MAX = 64 * limits.MIB


def _topic_name(text: str) -> str:
    if not LEGAL_NAME.fullmatch(text):
        raise ValueError
    return text


def _by_partition(text: str) -> dict[int, int]:
    """Return the numbers of a text such as ``{"0": 42}``; raise ``ValueError`` for another one."""
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ValueError("it names no partition")
    for name, number in found.items():
        if not (name.isascii() and name.isdigit() and str(int(name)) == name):
            raise ValueError(f"{name!r} is no number of a partition")
        if type(number) is not int or not 0 <= number <= limits.INT64_MAX:
            raise ValueError(f"the value of {name!r} is no number from 0 on")
    return {int(name): number for name, number in found.items()}


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member comes twice")
    return found


_JSON = 'JSON such as {"0":42}, with a number for each partition'

OPTIONS = (
    Option("endpoint", "the URL of the service", options.words),
    Option("region", "the AWS region that requests are signed for", options.words),
    Option("topic", "the name of a topic", _topic_name),
    Option("delivery", "exactly-once or at-least-once", options.one_of("exactly-once", "at-least-once")),
    Option("compression", ", ".join(CODECS), options.one_of(*CODECS)),
    Option("inlineBytes", f"a whole number from 0 to {INLINE_BYTES_MAX}", options.whole(0, INLINE_BYTES_MAX)),
    Option(
        "commitTimeoutMs", f"a time in ms from 1 to {COMMIT_TIMEOUT_MS_MAX}", options.whole(1, COMMIT_TIMEOUT_MS_MAX)
    ),
    Option("txnAppId", "a name of 1 to 249 bytes without / and control characters", check_transactional_id),
    Option("txnVersion", "a whole number from 0 on", options.whole(0)),
    Option("sessionId", "the id of a session that has claimed the partitions", options.words),
    Option("topicEpochs", _JSON, _by_partition),
    Option("expectedOffsets", _JSON, _by_partition),
)

# The options that Spark adds to those of a query by itself.
_SPARKS_OWN = ("queryname", "checkpointlocation")
_INSTEAD = {
    "kafka.bootstrap.servers": "endpoint takes its place, with the URL of the service",
    "kafka.compression.type": "compression takes its place",
    "kafka.": "nothing of Kafka's client is used, so leave it out; endpoint gives the service's URL",
    "includeHeaders": "a write takes headers where the rows have a column headers",
    "path": "the topic is named by the option topic, so give save() and start() no path",
}
_OF_EXACTLY_ONCE = ("inlineBytes", "commitTimeoutMs", "txnAppId", "txnVersion", "expectedOffsets")
_OF_BATCH_WRITES = ("txnAppId", "txnVersion", "expectedOffsets")


@dataclass(frozen=True)
class SinkOptions:
    """All options of a write, parsed.

    Attributes:
        region: The region that requests are signed for, as the client's ``region``.
        topic: The topic of every row; ``None`` takes each row's own.
        topic_epochs: The partitions that the session has, with their epochs; ``None`` writes under no session.
        expected_offsets: The offset from which on each partition's rows must lie.
    """

    endpoint: str
    region: str | None = None
    topic: str | None = None
    is_exactly_once: bool = True
    codec: Codec = "zstd"
    inline_bytes: int = 262_144
    commit_timeout_ms: int = 3_600_000
    txn_app_id: str | None = None
    txn_version: int | None = None
    session_id: str | None = None
    topic_epochs: Mapping[int, int] | None = None
    expected_offsets: Mapping[int, int] | None = None

    @property
    def writable(self) -> frozenset[int] | None:
        """The partitions that rows may be in; ``None`` is all of the topic."""
        named = [set(each) for each in (self.topic_epochs, self.expected_offsets) if each is not None]
        return frozenset(set.intersection(*named)) if named else None

    @property
    def target(self) -> str:
        """The topic of the rows, or the column that names it, as a part of a message."""
        return "topics=by-column" if self.topic is None else f"topic={self.topic}"

    @classmethod
    def of(cls, given: Mapping[str, str], *, is_stream: bool, environ: Mapping[str, str] = os.environ) -> SinkOptions:
        """Return the options of a write.

        Raises:
            InvalidRequestError: There is no such option, it does not take its value, or two contradict each other.
        """
        values = options.parse_options(given, OPTIONS, instead=_INSTEAD, ignored=_SPARKS_OWN)
        _check_combinations(values, is_stream=is_stream)
        found = cls(
            endpoint=options.endpoint_of(values, environ),
            region=options.region_of(values, environ),
            topic=values.get("topic"),
            is_exactly_once=values.get("delivery", "exactly-once") == "exactly-once",
            codec=values.get("compression", cls.codec),
            inline_bytes=values.get("inlineBytes", cls.inline_bytes),
            commit_timeout_ms=values.get("commitTimeoutMs", cls.commit_timeout_ms),
            txn_app_id=values.get("txnAppId"),
            txn_version=values.get("txnVersion"),
            session_id=values.get("sessionId"),
            topic_epochs=values.get("topicEpochs"),
            expected_offsets=values.get("expectedOffsets"),
        )
        if found.writable is not None and not found.writable:
            raise InvalidRequestError(
                "topicEpochs and expectedOffsets have no partition in common; name the same ones: "
                "options=topicEpochs,expectedOffsets",
                field="expectedOffsets",
            )
        return found


def _check_combinations(values: Mapping[str, Any], *, is_stream: bool) -> None:
    """Refuse options that say nothing without another one, or that contradict one.

    Raises:
        InvalidRequestError: See above. ``field`` names the option.
    """
    _need_both(values, "txnAppId", "txnVersion")
    _need_both(values, "sessionId", "topicEpochs")
    if is_stream:
        options.refuse(values, _OF_BATCH_WRITES, "is an option of a batch write; a stream is written once by its id")
    if values.get("delivery") == "at-least-once":
        options.refuse(values, _OF_EXACTLY_ONCE, "needs delivery=exactly-once; leave one of them out")
    if "topic" not in values:
        options.refuse(values, ("topicEpochs", "expectedOffsets"), "is about one topic; give the option topic, too")


def _need_both(values: Mapping[str, Any], *names: str) -> None:
    missing = [name for name in names if name not in values]
    if len(missing) == 1:
        raise InvalidRequestError(
            f"{' and '.join(names)} come together; give both, or none: missing={missing[0]}", field=missing[0]
        )
