"""A peer that publishes its address: when the address is read, and what happens while it cannot be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from fenceline.adapters.aws.published_peer import ADDRESS_S, FAILED_S, Published
from fenceline.ports import Unavailable
from fenceline.regions.peer import Peer, PeerProblem


class Parameter:
    """The parameter with the address, and the clock."""

    def __init__(self) -> None:
        self.reads = 0
        self.url: str | None = "https://one"
        self.now_s = 0.0
        self.takes_s = 0.0
        self.published = Published("b", lambda url: cast(Peer, f"peer at {url}"), self.read, now_s=lambda: self.now_s)

    def read(self) -> str:
        self.reads += 1
        self.now_s += self.takes_s
        if self.url is None:
            raise Unavailable("no answer\nin time")
        return self.url

    def fails(self) -> bool:
        try:
            self.published.peer()
        except PeerProblem as problem:
            return str(problem) == "the peer b: its address cannot be read: reason=no answer in time"
        return False


@pytest.fixture
def parameter() -> Parameter:
    return Parameter()


def test_an_address_is_read_again_after_five_minutes_and_kept_while_it_cannot_be_read(parameter: Parameter) -> None:
    first = parameter.published.peer()
    parameter.now_s = ADDRESS_S
    assert (parameter.published.peer(), parameter.reads) == (first, 1)
    parameter.now_s, parameter.url = ADDRESS_S + 1, None
    assert (parameter.published.peer(), parameter.reads) == (first, 2)
    assert (parameter.published.peer(), parameter.reads) == (first, 2)
    parameter.now_s, parameter.url = 2 * ADDRESS_S + 2, "https://two"
    assert str(parameter.published.peer()) == "peer at https://two"


def test_a_first_address_that_cannot_be_read_is_asked_for_once_in_a_while(parameter: Parameter) -> None:
    """Each partition asks for it, and all wait for one lock."""
    parameter.url, parameter.takes_s = None, 3
    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(lambda _: parameter.fails(), range(20)))
    assert (parameter.reads, parameter.now_s) == (1, 3)
    parameter.now_s += FAILED_S - 1
    assert parameter.fails()
    assert parameter.reads == 1
    parameter.now_s, parameter.url = 3 + FAILED_S, "https://one"
    assert not parameter.fails()
    assert parameter.reads == 2
