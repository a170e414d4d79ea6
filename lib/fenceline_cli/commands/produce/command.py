"""``fenceline produce``: the lines of a file, or of stdin, as records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.errors import FencelineError
from fenceline_cli.codec_alone import load_codec
from fenceline_cli.commands.produce.stop import GraceOver, Stop, StoppedReading
from fenceline_cli.commands.produce.watch import Watch
from fenceline_cli.options import DEFAULT_URL, Codec, Session, TopicName, Url, connect, partitions_of
from fenceline_cli.output import CommandError, describe, print_json

if TYPE_CHECKING:
    from fenceline.client import Client, Producer
    from fenceline.client.delivery import Delivery
    from fenceline.model.record import Record
    from fenceline_cli import inputs

app = typer.Typer()

_LINGER_MS = 50  # for a line that comes alone
_BUFFER_BYTES = 8 * 1024 * 1024  # at most what can be sent after Ctrl-C


InputFile = Annotated[
    Path | None, typer.Option("--file", help="Read lines from this file, .gz and .bz2 unpacked; left out, from stdin.")
]
KeySeparator = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Split each line at the first TEXT: key before it, value after it.")
]
JsonLines = Annotated[
    bool,
    typer.Option("--json-lines", help='Each line is an object: {"key", "value", "headers", "timestamp", "encoding"}.'),
]
Partition = Annotated[int | None, typer.Option(min=0, help="Send every record to this partition, whatever its key.")]
ExpectedOffset = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Give the first record exactly this offset in --partition, or store none."),
]


@app.command(
    epilog="Example: echo hello | fenceline produce greetings\n\n"
    "Example: fenceline produce reviews --file reviews.csv.bz2 --key-separator ,\n\n"
    "Example: fenceline produce orders --file orders.jsonl.gz --json-lines\n\n"
    "Example: fenceline consume orders --format json | fenceline produce copy --json-lines\n\n"
    "Example: echo paid | fenceline produce orders --partition 0 --expected-offset 42\n\n"
    "Example: echo paid | fenceline produce orders --verbose   (prints orders/0 offset=42)\n\n"
    "Example: fenceline produce orders --file more.txt --session 5bd5…  (of 'fenceline producers claim')"
)
def produce(
    topic: TopicName,
    file: InputFile = None,
    key_separator: KeySeparator = None,
    json_lines: JsonLines = False,
    partition: Partition = None,
    expected_offset: ExpectedOffset = None,
    session: Session = None,
    compression: Annotated[Codec, typer.Option(help="How batches are compressed.")] = "zstd",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each record's partition and offset once it is stored.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line for each stored record, and nothing else; errors, too.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Append a record for each line, exactly once, to the partition of its key (Kafka's partitioner).

    A line is sent as soon as it was read. After Ctrl-C, or SIGTERM, what was read is still sent, for two seconds at
    most. With --expected-offset each batch is stored right after the one before, or not at all (KIP-27). With --session
    the command writes to the partitions of a session that 'fenceline producers claim' or 'fenceline own' holds.

    With --json-lines it takes what 'fenceline consume --format json' prints, and so copies a topic. A line with
    "encoding": "base64" holds bytes. The members topic, partition, offset and topic_epoch of a line are ignored.
    """
    load_codec()
    from fenceline_cli import inputs  # only here: help needs no decompression

    parse = _parser(key_separator, json_lines)
    started = time.monotonic()
    with connect(url) as client, inputs.opened(file) as source:
        partitions_of(client, topic, partition)
        expected = None if expected_offset is None else _expected(client, topic, partition, expected_offset)
        if expected is not None:
            (partition,) = expected
        producer = client.producer(
            topic,
            compression=compression,
            linger_ms=_LINGER_MS,
            buffer_bytes=_BUFFER_BYTES,
            session_id=session,
            expected_offsets=expected,
        )
        with Stop() as stop:
            prints = verbose or as_json
            watch = Watch(producer, url, file=file, prints=prints, bytes_read=source.bytes_read, on_failure=stop.now)
            stored = StoredLines(topic, as_json=as_json) if prints else None
            with suppress(GraceOver), producer, watch:
                _send(producer, watch, inputs.records_of(stop.blocks(source), parse), partition, stored)
        count = producer.acknowledged
    if stop.signal is not None:
        _report_interrupted(count, watch.given)
        raise typer.Exit(128 + stop.signal)
    if as_json:
        return
    seconds = time.monotonic() - started
    typer.echo(f"produced {count} records to {topic} in {seconds:.1f} s ({count / seconds:,.0f} records/s)")


class StoredLines:
    """The lines that say where records were stored, in the order in which they were given."""

    def __init__(self, topic: str, *, as_json: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self._left: deque[Delivery] = deque()

    def add(self, delivery: Delivery) -> None:
        self._left.append(delivery)
        self.show()

    def show(self, *, is_all: bool = False) -> None:
        """Print a line for each of the first records that are done; with ``is_all`` for all that were stored."""
        while self._left and (is_all or self._left[0].is_done):
            delivery = self._left.popleft()
            with suppress(FencelineError, CancelledError, TimeoutError):  # what failed is reported by the flush
                at = delivery.result(0)
                if self._as_json:
                    print_json({"topic": self._topic, "partition": at.partition, "offset": at.offset})
                else:
                    typer.echo(f"{self._topic}/{at.partition} offset={at.offset}")


def _send(
    producer: Producer, watch: Watch, records: Iterable[list[Record]], partition: int | None, stored: StoredLines | None
) -> None:
    """Send all records, or those that were read before a stop, and wait for their acknowledgements.

    Raises:
        CommandError: A record could not be read or stored; the message says how many were stored.
    """
    try:
        fault: CommandError | None = None
        try:
            for some in records:
                watch.given += len(some)
                if stored is None:
                    producer.send_many(some, partition=partition)
                else:
                    _send_each(producer, some, partition, stored)
        except StoppedReading:
            pass
        except CommandError as error:
            fault = error
        producer.flush()
        if fault is not None:
            raise fault
    except (FencelineError, CommandError, ValueError) as error:
        reason = describe(error) if isinstance(error, FencelineError) else str(error)
        raise CommandError(f"{reason}; {producer.acknowledged} records were acknowledged before") from error
    finally:
        if stored is not None:
            stored.show(is_all=True)


def _send_each(producer: Producer, records: Iterable[Record], partition: int | None, stored: StoredLines) -> None:
    for one in records:
        stored.add(
            producer.send(
                key=one.key, value=one.value, headers=one.headers, timestamp=one.timestamp, partition=partition
            )
        )


def _report_interrupted(count: int, given: int) -> None:
    rest = "all that were read" if count == given else f"of {given} that were read; the others may be stored or not"
    typer.echo(f"interrupted: {count} records were acknowledged, {rest}", err=True)


def _expected(client: Client, topic: str, partition: int | None, offset: int) -> dict[int, int]:
    described = client.topic(topic)
    if partition is None and described.partitions > 1:
        raise CommandError(
            f"--expected-offset needs one partition, and topic {topic} has {described.partitions}; add --partition"
        )
    if not described.setting("check.expected.offsets"):
        raise CommandError(
            f"topic {topic} does not check expected offsets; set its check.expected.offsets=true, or leave out "
            "--expected-offset"
        )
    return {partition or 0: offset}


def _parser(key_separator: str | None, json_lines: bool) -> inputs.Parse:
    from fenceline_cli import inputs

    if key_separator is None:
        return inputs.json_line if json_lines else inputs.value_only
    if json_lines:
        raise CommandError("a JSON line names its own key; leave out --key-separator or --json-lines")
    if not key_separator:
        raise CommandError("--key-separator is empty; give the text that ends the key")
    return inputs.keyed(key_separator.encode())
