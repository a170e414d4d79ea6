"""A topic that grows, its copy by a streaming query, and what the copy must have whenever a driver dies."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fenceline.client import Client
from fenceline.model.kinds import Isolation
from fenceline.model.record import Record
from tests.spark.gates import Gate
from tests.spark.processes import Session, session

PARTITIONS = 3
ROWS = (40, 4, 4)  # that each growth adds to each partition, of 100 bytes
INLINE_BYTES = 1_500  # so a growth is one part in a transaction of its own, and two by the driver

TASK, DRIVER = r"spark\.[-\w]+\.\d+\.\d+", r"spark\.[-\w]+"
UNHEARD = "the driver does not hear that its batch is decided"
SENDS_THE_END = "the driver sends the end"
# What a driver is doing when it dies: the request, whether the service had done it, and whether the batch is decided.
MOMENTS = {
    "a task asked whether its batch is written": (f"GET /v1/once/{DRIVER}", True, False),
    "a task amid its appends": (f"POST /v1/topics/.*/records {TASK}", True, False),
    "the driver asks for the query's id": (f"POST /v1/producer-ids {DRIVER}", True, False),
    "the driver amid the inline rows": (f"POST /v1/topics/.*/records {DRIVER}", True, False),
    UNHEARD: ("POST /v1/transactions/end", True, True),
    "the driver heard so, and Spark has not logged it": (f"GET /v1/transactions/{TASK}", False, True),
    SENDS_THE_END: ("POST /v1/transactions/end", False, False),
}


@dataclass
class Copying:
    """A source, its copy, and the checkpoint of the query; the drivers come and go."""

    client: Client
    url: str
    folder: Path
    source: str = "orders"
    growths: int = 0
    drivers: int = 0
    values: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def __post_init__(self) -> None:
        self.target = f"{self.source}-copied"
        self.checkpoint = self.folder / "checkpoint"
        self.client.create_topic(self.source, partitions=PARTITIONS)
        self.client.create_topic(self.target, partitions=2)

    def grow(self) -> None:
        """Add rows to each partition."""
        for partition, count in enumerate(ROWS):
            added = [b"%d-%d-%d".ljust(100, b".") % (self.growths, partition, number) for number in range(count)]
            self.client.produce(self.source, partition, [Record(value, key=value[:20]) for value in added])
            self.values[partition] += added
        self.growths += 1

    @contextmanager
    def driver(self, **given: Any) -> Iterator[tuple[Session, Gate]]:
        """Lend the next driver of the query, with more arguments for ``copy``, behind a gate of its own."""
        self.drivers += 1
        with Gate(self.url) as gate:
            arguments = {
                "endpoint": gate.url,
                "source": self.source,
                "target": self.target,
                "checkpoint": str(self.checkpoint),
                "inline_bytes": INLINE_BYTES,
                **given,
            }
            command = [sys.executable, "-m", "tests.spark.driver_process", json.dumps(arguments)]
            environ = {"SPARK_LOCAL_DIRS": str(self.folder / "scratch"), "SPARK_LOCAL_IP": "127.0.0.1"}
            with session(command, environ, self.folder / f"driver-{self.drivers}.log") as lent:
                yield lent, gate

    def is_at(self, batch: int) -> bool:
        """Return True if ``batch`` is the last one that Spark logged before it ran it."""
        return self._logged(batch).exists() and not self._logged(batch + 1).exists()

    @property
    def once_id(self) -> str:
        return f"spark.{json.loads((self.checkpoint / 'metadata').read_text())['id']}"

    @property
    def version(self) -> int:
        """The last batch that was decided; -1 if none was."""
        return self.client.once(self.once_id).version

    def expected(self, batch: int) -> Counter[bytes | None]:
        """Return the values of all batches up to ``batch``, each once."""
        if batch < 0:
            return Counter()
        ends = json.loads(self._logged(batch).read_text().splitlines()[-1])[self.source]
        return Counter(value for partition, end in ends.items() for value in self.values[int(partition)][:end])

    def all_values(self) -> list[bytes]:
        return [value for values in self.values for value in values]

    def committed(self, isolation: Isolation = "read_committed") -> Counter[bytes | None]:
        """Return the values of the copy, as a reader of committed records gets them now."""
        with self.client.reader(self.target, isolation=isolation) as reader:
            return Counter(record.value for _, record in reader)

    def check_whole(self) -> None:
        """Fail unless each row is in the copy once, and no open transaction holds its readers up."""
        assert self.committed() == Counter(self.all_values())
        bounds = self.client.topic_offsets(self.target).values()
        assert all(each.last_stable_offset == each.next_offset for each in bounds)

    def _logged(self, batch: int) -> Path:
        return self.checkpoint / "offsets" / str(batch)
