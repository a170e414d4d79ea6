"""A rebuild from the objects of one moment of a seed: a commit that one partition has shown, all partitions show.

Protocol, "Transactions beside the rest". Rule: a rebuild works on copies, once the seed is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from random import Random

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format.control import COMMIT, parse_marker
from fenceline.format.keys import parse_segment_key
from fenceline.log.context import Context
from fenceline.model.requests import ReadRequest
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import verify_partition
from fenceline.service.log import Log
from tests.simulation.harness import real
from tests.simulation.harness.stores import Creation
from tests.simulation.log.truth import Violation
from tests.simulation.transactions.truth import TransactionTruth
from tests.support.runtime import FakeRuntime
from tests.support.service import REGION
from tests.support.sweeping import strict_sweep

Pair = tuple[int, int]


def check_recovered(created: Sequence[Creation], truth: TransactionTruth, seed: str) -> None:
    """Rebuild as of a random moment, end what was open, and check that each transaction is all or nothing.

    Raises:
        Violation: One is not, or is aborted though its commit was shown.
    """
    cut = Random(f"recovered {seed}").randrange(1, len(created) + 1)
    runtime = FakeRuntime()
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"secret")
    with closing(objects), closing(SqliteItemStore(":memory:")) as items:
        made: dict[str, Creation] = {}
        for creation in created[:cut]:
            if made.setdefault(creation.key, creation) is creation:
                objects.create(creation.key, creation.body, creation.metadata)
        rebuild(Context(objects, items, runtime, REGION))
        log = Log(objects, items, runtime, region=REGION)
        for _ in range(2):
            report = strict_sweep(log, duration_ms=600_000, is_thorough=True)
            if report is None or report.problems or report.transactions_hanging:
                raise Violation(f"a sweep after a rebuild as of {cut}: {report}")
        shown = _shown(log)
        _judge(shown, _committed(made), truth, made[created[cut - 1].key].step)


def _shown(log: Log) -> Mapping[tuple[str, int], tuple[int, set[int]]]:
    """Return by partition its log start and the offsets of committed records, all of them decided."""
    shown = {}
    for topic in log.topics.list(limit=1_000)[0]:
        for number in range(topic.partitions):
            bounds = log.partitions.offsets(topic.name, number).bounds
            if bounds.last_stable_offset != bounds.next_offset:
                raise Violation(f"held up after a rebuild: {topic.name}/{number} {bounds}")
            found = verify_partition(log.context, topic, number)
            if found.broken_at is not None or found.findings:
                raise Violation(f"verify after a rebuild: {found}")
            offset, offsets = bounds.log_start_offset, set[int]()
            while offset < bounds.next_offset:
                page = log.partitions.read(topic.name, number, ReadRequest(offset=offset, is_read_committed=True))
                offsets |= {record.offset for record in page.records}
                offset = page.position
            shown[topic.topic_id, number] = bounds.log_start_offset, offsets
    return shown


def _committed(made: Mapping[str, Creation]) -> dict[Pair, list[tuple[str, int, int]]]:
    """Return the transactions that a COMMIT was written of, by producer id and epoch of data, and where each is."""
    found: dict[Pair, list[tuple[str, int, int]]] = {}
    for key, creation in made.items():
        if key.startswith("log/"):
            segment = real.segment_of(creation)
            for at, header in segment.batches:
                if header.is_control and parse_marker(segment.body, at, header).type == COMMIT:
                    pair = header.producer_id, header.producer_epoch - 1
                    found.setdefault(pair, []).append((*parse_segment_key(key)[:2], header.base_offset))
    return found


def _judge(
    shown: Mapping[tuple[str, int], tuple[int, set[int]]],
    committed: Mapping[Pair, Sequence[tuple[str, int, int]]],
    truth: TransactionTruth,
    step: int,
) -> None:
    outcomes: dict[Pair, set[bool]] = {}
    for place, (log_start, offsets) in shown.items():
        log = truth.logs.get(place)
        for one in [] if log is None else log.records:
            if one.step <= step and one.offset >= log_start and one.transaction is not None:
                outcomes.setdefault(one.transaction, set()).add(one.offset in offsets)
    for pair, seen in outcomes.items():
        if len(seen) > 1:
            raise Violation(f"torn apart by a rebuild: {pair}")
        is_kept = any(
            (topic_id, number) in shown and offset >= shown[topic_id, number][0]
            for topic_id, number, offset in committed.get(pair, ())
        )
        if is_kept and seen != {True}:
            raise Violation(f"aborted by a rebuild, though its commit was shown: {pair}")
