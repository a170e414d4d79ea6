"""Drivers that die by ``kill -9``, or come back late, at each kind of request that the sink makes (I29).

Each is a real process, with its JVM and its workers, and costs the CPU of all of them. So CI has each kind of death
once, by four drivers. ``make prove`` has every moment of ``MOMENTS``:

- a task's process dies amid its appends, and Spark tries the task again;
- a driver dies with its batch written and undecided;
- a driver dies with its batch decided, and never heard so;
- a driver stops, and goes on once another one has written its batch.

The protocol's every request, lost and unanswered, is tried without Spark in ``test_sink_crashes``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fenceline_testing import serving
from tests.spark.copying import MOMENTS, SENDS_THE_END, UNHEARD, Copying
from tests.spark.processes import kill_the_sender

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds a driver's processes in /proc, which Linux has"),
]


@pytest.fixture
def copying(tmp_path: Path) -> Iterator[Copying]:
    with serving() as lent:
        yield Copying(lent.client, lent.url, tmp_path)


def kill_at(moment: str, copying: Copying, batch: int) -> None:
    """Kill a driver in its next batch, which is then there whole or not at all."""
    request, is_answered, is_decided = MOMENTS[moment]
    copying.grow()
    with copying.driver() as (driver, gate):
        driver.meets(gate.hold(request, is_answered=is_answered, when=partial(copying.is_at, batch)))
        driver.kill()
    assert copying.version == (batch if is_decided else batch - 1), gate.log
    assert copying.committed() == copying.expected(copying.version)


def stop_until_another_wrote(copying: Copying, batch: int) -> None:
    """Stop a driver as it sends the end of its next batch, and let it go on once its successor has ended.

    The successor writes that batch, too. The process of its first task dies amid the appends, so Spark tries that task
    again. Then the end that the stopped driver sent comes to the service.
    """
    request, _, _ = MOMENTS[SENDS_THE_END]
    copying.grow()
    with copying.driver() as (zombie, late):
        hold = late.hold(request, when=partial(copying.is_at, batch))
        zombie.meets(hold)
        zombie.stop()
        assert copying.version == batch - 1
        with copying.driver(master="local[2,2]") as (successor, gate):
            dies = gate.hold(r"POST /v1/topics/.*/records spark\.[-\w]+\.0\.0", is_answered=True)
            successor.meets(dies)
            kill_the_sender(dies.port, successor)
            assert successor.wait() == 0, successor.output()
        assert f"POST /v1/producer-ids {copying.once_id}.0.1 -> 200" in gate.log
        assert copying.version == batch
        zombie.go_on()
        hold.release()
        assert zombie.wait() != 0  # its sink gave way, and Spark found the batch in its commit log
        assert "POST /v1/transactions/end -> 409" in late.log
    copying.check_whole()


def test_drivers_are_killed_undecided_and_unheard_and_one_comes_back_late(copying: Copying) -> None:
    kill_at(SENDS_THE_END, copying, 0)
    kill_at(UNHEARD, copying, 0)  # its driver writes the batch again that the one before it left
    stop_until_another_wrote(copying, 1)


@pytest.mark.prove
def test_a_driver_is_killed_at_each_request_and_each_next_one_goes_on(copying: Copying) -> None:
    """Each start recovers from the death before it, and dies in the next batch. The last one is stopped, not killed."""
    *deaths, last = MOMENTS
    assert last == SENDS_THE_END
    for batch, moment in enumerate(deaths):
        kill_at(moment, copying, batch)
    stop_until_another_wrote(copying, len(deaths))
