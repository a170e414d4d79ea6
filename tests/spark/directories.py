"""The stores of a directory, which workers of Spark open, too.

Not here: the service that most tests share; see ``conftest``.
"""

from __future__ import annotations

from pathlib import Path

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import batch, keys
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.results import ReadRecord
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from tests.protocol.compaction.test_compaction import plain, read_all
from tests.support.service import TOPIC

REGION = "here"


class Directory:
    """The stores of a directory, with one topic that compacts; ``copy`` is the same at another place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = Settings(str(path), REGION, 0)
        self.objects, self.items = open_directory(path, now_ms=ThreadRuntime().now_ms)
        self.log = self.opened()

    def opened(self) -> Log:
        """Return a log that remembers nothing."""
        return Log(self.objects, self.items, ThreadRuntime(), region=REGION)

    def partition(self, number: int = 0) -> Partition:
        return Partition(self.opened().context, TOPIC, self.topic_id, number)

    @property
    def topic_id(self) -> str:
        return self.log.topics.get(TOPIC).topic_id

    @property
    def head(self) -> Head:
        key = keys.head_item(self.topic_id, 0)
        return Head.from_value(self.items.get([key])[key].value)

    def files(self) -> list[str]:
        return [line.key for line in self.objects.list(keys.compacted_prefix(self.topic_id, 0))]

    def read(self) -> list[ReadRecord]:
        found = read_all(self.opened(), self.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset)
        return [plain(record) for record in found]

    def append(self, *records: Record) -> None:
        body = batch.encode(records, now_ms=1_700_000_000_000).body
        self.log.append(TOPIC, 0, AppendRequest.of_batch(body))

    def close(self) -> None:
        self.objects.close()
        self.items.close()
