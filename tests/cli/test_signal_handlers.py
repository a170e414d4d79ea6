"""What the blocks that hear signals leave behind: the handlers from before, and no alarm."""

import signal

import pytest

from fenceline_cli.commands.produce import stop
from fenceline_cli.commands.produce.stop import Stop
from fenceline_cli.commands.transactions import batch_command
from fenceline_cli.commands.transactions.batch_command import Signals


@pytest.fixture
def handlers():
    """Return the signals that a test may send, each with the handler that it has outside of a block."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGALRM)}
    yield {number: signal.getsignal(number) for number in before}
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("made", [Stop, Signals])
def test_an_alarm_of_the_block_does_not_outlive_it(handlers, made, monkeypatch):
    monkeypatch.setattr(stop, "GRACE_S", 3_600)
    monkeypatch.setattr(batch_command, "COMMIT_GRACE_S", 3_600)
    with made() as block:
        if made is Signals:
            block.hold_back()
        signal.raise_signal(signal.SIGTERM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0

    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.mark.parametrize("made", [Stop, Signals])
def test_a_signal_that_is_ignored_stays_so(handlers, made):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with made():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
