"""The page of the options on Spark, made of the tables of options that the source and the sink parse by.

Rule: what an option takes comes from the code. What it means, and what counts without it, is here, for every option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline_spark import options as common
from fenceline_spark.sink.options import OPTIONS as OF_THE_SINK
from fenceline_spark.source.options import OPTIONS as OF_THE_SOURCE
from tools.docs.markdown_text import block, filled

PAGE = "docs/reference/spark/options.md"
SOURCE = "the tables of options in lib/fenceline_spark, and tools/docs/spark.py"

_PLAIN = ("endpoint", "region", "subscribePattern", "sessionId")  # what they take is what they mean

# The meaning of each option, and its default; "" where nothing counts without it.
Meanings = Mapping[str, tuple[str, str]]

_BOTH: Meanings = {
    "endpoint": ("The URL of the service.", "`FENCELINE_URL`, as the driver's process began with it"),
    "region": (
        "The AWS region that requests are signed for. Without it no request is signed.",
        "`FENCELINE_AWS_REGION`",
    ),
}
MEANINGS_OF_SOURCE: Meanings = {
    **_BOTH,
    "subscribe": (
        "The topics to read. A read takes exactly one of `subscribe`, `assign` and `subscribePattern`.",
        "",
    ),
    "assign": ("The partitions to read.", ""),
    "subscribePattern": ("The topics to read, as a regular expression that must match a whole name.", ""),
    "startingOffsets": (
        "Where the read begins. JSON names every partition. A batch cannot begin at `latest`.",
        "`earliest` in a batch, `latest` in a stream",
    ),
    "endingOffsets": (
        "Where a batch ends. JSON cannot have -2 here. A stream has no end, and refuses the option.",
        "`latest`",
    ),
    "startingTimestamp": ("The read begins at the first record at or after this time, in every partition.", ""),
    "endingTimestamp": (
        "A batch ends before the first record at or after this time, in every partition. Without such a record it ends "
        "at the latest offset.",
        "",
    ),
    "startingOffsetsByTimestamp": ("As `startingTimestamp`, with a time for each partition.", ""),
    "endingOffsetsByTimestamp": ("As `endingTimestamp`, with a time for each partition.", ""),
    "startingOffsetsByTimestampStrategy": (
        "What happens where a partition has no record at or after the starting time: the read fails (`error`), or "
        "begins at the latest offset (`latest`).",
        "`error`",
    ),
    "isolation": (
        "With `read_committed` no row is of an open or aborted transaction, and the read ends at the last stable "
        "offset.",
        "`read_committed`",
    ),
    "minPartitions": ("Ranges of offsets are cut, so that the read has at least so many tasks.", ""),
    "maxRecordsPerPartition": ("Ranges of offsets are cut, so that no task has more offsets than this.", ""),
    "maxOffsetsPerTrigger": (
        "A batch of a stream has at most so many offsets, shared by what each partition has left. It needs PySpark "
        "4.2.",
        "",
    ),
    "minOffsetsPerTrigger": ("A stream waits until it has so many offsets for a batch. It needs PySpark 4.2.", ""),
    "maxTriggerDelay": (
        "A stream waits for `minOffsetsPerTrigger` no longer than this. It needs PySpark 4.2.",
        "`15m`",
    ),
    "failOnDataLoss": (
        "Whether a query fails where records that it asked for are no longer kept. With `false` it goes on with what "
        "is kept, and one warning for each batch counts the offsets that it skipped.",
        "`true`",
    ),
    "includeHeaders": ("Whether rows have the column `headers`.", "`false`"),
    "includeTopicEpoch": ("Whether rows have the column `topic_epoch`.", "`false`"),
    "includeOrigin": ("Whether rows have the column `origin`.", "`false`"),
    "origin": ("With `own` the read leaves out the records that came from other regions.", ""),
    "narrowByFilters": (
        "Whether the filters of a batch narrow what is fetched. It needs PySpark 4.1. Use such a DataFrame once, with "
        "one set of filters, because Spark keeps the plan of its last use for all of its uses.",
        "`false`",
    ),
    "progressGroup": (
        "A stream commits its progress to this group, one batch late, so that backlog and alarms show it. The stream "
        "never reads it back, and a commit that the group refuses is a warning.",
        "",
    ),
}
MEANINGS_OF_SINK: Meanings = {
    **_BOTH,
    "topic": ("The topic of every row. It wins over the column `topic`.", "each row's own, by the column `topic`"),
    "delivery": (
        "With `exactly-once` all rows of a batch become visible together, once. With `at-least-once` rows are visible "
        "as tasks go, and a task that runs again repeats its rows.",
        "`exactly-once`",
    ),
    "compression": ("How batches are compressed.", "`zstd`"),
    "inlineBytes": (
        "A task whose rows take at most so many bytes, encoded, hands them to the driver. With more it writes them "
        "itself, in a transaction of its own.",
        "`262144`",
    ),
    "commitTimeoutMs": (
        "How long the transaction of a finished task waits for the rest of its batch. After that the batch is refused.",
        "`3600000`",
    ),
    "txnAppId": (
        "The id under which a batch write is counted, with `txnVersion`. A version not above the last one of this id "
        "writes nothing. Give each write its own id.",
        "",
    ),
    "txnVersion": ("The number of a batch write. In `foreachBatch` it is the id of the batch.", ""),
    "sessionId": (
        "The write acts as this exclusive producer, and needs `topicEpochs`. Where it is fenced before its last row, "
        "the whole batch fails.",
        "",
    ),
    "topicEpochs": ("The epochs of the session by partition.", ""),
    "expectedOffsets": (
        "The rows of a batch write lie from exactly these offsets on, or nothing is written. It has one try, so leave "
        "speculation off.",
        "",
    ),
}


def pages() -> dict[str, str]:
    return {
        PAGE: "".join(
            [
                "# Options\n\n",
                filled(
                    "This page has every option of the source and of the sink, with what it takes and what counts "
                    "without it. Names are those of Spark's source for Kafka where that has the option. Case does not "
                    "matter. An option that does not exist, or does not take its value, is refused, and the message "
                    "says what to give."
                ),
                "\n\n",
                block(
                    'spark.read.format("fenceline").option("subscribe", "orders").load()\n'
                    'rows.write.format("fenceline").option("topic", "orders").mode("append").save()',
                    "python",
                ),
                "\n## The source\n",
                *_options(OF_THE_SOURCE, MEANINGS_OF_SOURCE),
                "\n## The sink\n",
                *_options(OF_THE_SINK, MEANINGS_OF_SINK, "sink-"),
            ]
        )
    }


def _options(options: Sequence[common.Option], meanings: Meanings, prefix: str = "") -> list[str]:
    made = []
    for option in options:
        what, default = meanings.get(option.name, ("", ""))
        takes = "" if option.name in _PLAIN else f"It takes {option.takes}."
        counts = f"Default: {default}." if default else ""
        made.append(
            f"\n### `{option.name}` {{ #{prefix}{option.name.lower()} }}\n\n"
            f"{filled(' '.join(filter(None, (what, _as_code(takes), counts))))}\n"
        )
    return made


def _as_code(takes: str) -> str:
    """Return what an option takes, with JSON as code."""
    before, found, after = takes.partition("{")
    inside, end, rest = after.rpartition("}")
    return f"{before}`{{{inside}}}`{rest}" if found and end else takes
