"""Drivers that die by ``kill -9``, or come back late, at each kind of request that the sink makes (I29).

Each is a real process, with its JVM and its workers. The protocol's every request, lost and unanswered, is tried
without Spark in ``test_sink_crashes``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fenceline_testing import serving
from tests.spark.copying import MOMENTS, Copying

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds a driver's processes in /proc, which Linux has"),
]


@pytest.fixture
def copying(tmp_path: Path) -> Iterator[Copying]:
    with serving() as lent:
        yield Copying(lent.client, lent.url, tmp_path)


def test_a_driver_is_killed_at_each_request_and_each_next_one_goes_on(copying: Copying) -> None:
    """Each start recovers from the death before it, and dies in the next batch. The last victim is stopped, not killed.

    Its successor writes its batch, too. So the end that it sent comes to the service after that.
    """
    *deaths, (sends_the_end, *_) = MOMENTS.values()
    for batch, (request, is_answered, is_decided) in enumerate(deaths):
        copying.grow()
        with copying.driver() as (driver, gate):
            driver.meets(gate.hold(request, is_answered=is_answered, when=partial(copying.is_at, batch)))
            driver.kill()
        assert copying.version == (batch if is_decided else batch - 1), gate.log
        assert copying.committed() == copying.expected(copying.version)

    copying.grow()
    batch = len(deaths)
    with copying.driver() as (zombie, late):
        hold = late.hold(sends_the_end, when=partial(copying.is_at, batch))
        zombie.meets(hold)
        zombie.stop()
        assert copying.version == batch - 1
        with copying.driver() as (successor, _):
            assert successor.wait() == 0, successor.told()
        assert copying.version == batch
        zombie.go_on()
        hold.release()
        assert zombie.wait() != 0  # its sink gave way, and Spark found the batch in its commit log
        assert "POST /v1/transactions/end -> 409" in late.log
    copying.check_whole()
