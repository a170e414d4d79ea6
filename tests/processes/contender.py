"""One of many processes that append to one partition, as fast as they are answered.

A process ends when there is the file ``OVER``. Each batch is a record of its own value. What became of it is a line on
standard output, written before the next append: ``value outcome offset``. Some answers of the object store are lost,
and some creates land late.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.model.record import Record
from fenceline.ports import AlreadyExists, NoAnswer
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log

TOPIC = "orders"
OVER = "over"  # the file whose making ends them
LOST = 0.02  # of the answers
LATE = 0.01  # of the creates: sent again, half a second after their answer was lost
DELAY_S = 0.010  # so that offers are worth their writes


class Far:
    """An object store that takes its time, loses answers, and lets some creates land late."""

    def __init__(self, inner: Any, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def slow(*args: Any, **named: Any) -> Any:
            time.sleep(DELAY_S)
            return call(*args, **named)

        return slow

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        time.sleep(DELAY_S)
        fate = self._chance.random()
        if key.startswith("log/") and fate < LATE:
            threading.Timer(0.5, self._land, (key, body, dict(metadata))).start()
            raise NoAnswer("it lands later")
        self._inner.create(key, body, metadata)
        if key.startswith("log/") and fate < LATE + LOST:
            raise NoAnswer("it has landed")

    def _land(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        with suppress(AlreadyExists):
            self._inner.create(key, body, metadata)


def main(directory: str, name: str) -> None:
    chance = random.Random(name)
    objects, items = open_directory(directory, now_ms=lambda: time.time_ns() // 1_000_000)
    log = Log(Far(objects, chance), items, ThreadRuntime(4), region="here", timeout_ms=3_000)  # type: ignore[arg-type]
    number = 0
    while not Path(directory, OVER).exists():
        number += 1
        value = f"{name}-{number}"
        print(value, "sent", -1, flush=True)
        try:
            answer = log.append(TOPIC, 0, AppendRequest.of_records([Record(value.encode())]))
            print(value, "acknowledged", answer and answer.base_offset, flush=True)
        except FencelineError as error:
            print(value, error.code, -1, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
