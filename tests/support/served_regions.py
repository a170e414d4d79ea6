"""Services of several regions in memory, each at ``http://NAME``: the real ones, whose state a test makes.

Rule: nothing travels by itself, neither records nor marks. What a region says of the others is what a test says, as
long as it has set ``status``; else what that region knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import httpx

from fenceline import errors
from fenceline.client import Client
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import wiring
from tests.support.regions import Region, RegionWorld
from tests.support.runtime import START_MS, AheadRuntime
from tests.support.wire import Script, Sent, Wire, refused

NOW_MS = START_MS
Answer = Callable[[], httpx.Response]


class ServedRegion(Wire):
    """The service of a region.

    Attributes:
        is_down: No request gets a connection.
        status: Members of the answer to ``getReplication``, in the place of those that the region knows.
        refusals: Errors by path.
        on_asked: Called with method and path before each answer.
    """

    def __init__(self, region: Region) -> None:
        stores = region.service
        settings = Settings(":memory:", region.name, item_age_ms=0)
        items, objects = cast(wiring.Items, stores.items), cast(wiring.Objects, stores.objects)
        super().__init__(service=wiring.Service(settings, region.log, objects, items, ThreadRuntime(), "0.0.0"))
        self.region = region
        self.name = region.name
        self.is_down = False
        self.status: dict[str, Any] | None = None
        self.refusals: dict[str, errors.FencelineError] = {}
        self.on_asked: Callable[[str, str], None] | None = None
        self.scripts["getReplication"] = self._replication

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("connection refused")
        if self.on_asked is not None:
            self.on_asked(request.method, request.url.path)
        if request.url.path in self.refusals:
            return refused(self.refusals[request.url.path])
        return super().handle_request(request)

    def _replication(self, _sent: Sent, carry_out: Answer) -> httpx.Response:
        if self.status is None:
            return carry_out()
        empty: dict[str, Any] = {"regions": [], "gaps": [], "skipped_records": 0, "snapshots": [], "pending": []}
        return httpx.Response(200, json={"region": self.name, **empty, **self.status, "has_more": False})

    def changes(self, topic: str = "t") -> list[tuple[str, str, Any]]:
        """Return the requests that change something, each path without the topic's."""
        prefix = f"/v1/topics/{topic}/"
        return [
            (one.request.method, one.request.url.path.removeprefix(prefix), one.value)
            for one in self.sent
            if one.request.method != "GET"
        ]

    def subscribe(self, marks: Mapping[int, tuple[int, int]], *, is_replicated: bool = True) -> None:
        """Create the subscription ``s`` with a mark and a backlog in each partition, and the records for both."""
        self.outside.create_subscription(
            "t", "s", initial_position="earliest", replicate_subscription_state=is_replicated
        )
        for partition, (mark, backlog) in marks.items():
            if mark + backlog:
                self.fill(*[b"x"] * (mark + backlog), partition=partition)
            if mark:
                self.outside.acknowledge("t", "s", partition, cumulative=mark - 1)

    def change_pages(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Let each page of records be another one: ``change`` gets it as JSON."""

        def script(_sent: Sent, carry_out: Answer) -> httpx.Response:
            page = carry_out().json()
            change(page)
            return httpx.Response(200, json=page)

        self.scripts["readRecords"] = script


@contextmanager
def world(*names: str, partitions: int = 2, serves: Sequence[str] = ()) -> Iterator[dict[str, ServedRegion]]:
    """Lend regions that have the topic ``t``, which names all of them.

    Args:
        serves: Those that have a service; left out, all.
    """
    made = RegionWorld(*names, runtimes=dict.fromkeys(names, AheadRuntime()))
    made.create("t", partitions=partitions)
    yield {name: ServedRegion(made[name]) for name in serves or names}
    made.close()


def connecting(regions: Mapping[str, ServedRegion], runtime: AheadRuntime) -> Callable[..., Client]:
    """Return what makes a client of the region that a URL names."""

    def connect(url: str, **given: Any) -> Client:
        return Client(url, http=regions[url.rpartition("/")[2]], runtime=runtime, **given)

    return connect


def region_status(region: str, **given: Any) -> dict[str, Any]:
    """Return how a region is shown, connected and without lag unless ``given`` says otherwise."""
    lag = {"lag_records": 0, "lag_ms": 0, "last_seen_at": NOW_MS, "answered_at": None, "problem": None}
    return {"region": region, "connected": True, "suspended": False, **lag, **given}


def snapshot(partition: int, local_offset: int, offsets: Mapping[str, int], **given: Any) -> dict[str, Any]:
    what = {"snapshot_id": "snap", "partition": partition, "local_offset": local_offset, "offsets": offsets}
    return {**what, "completed_at": NOW_MS, "final": True, **given}


def answers(**members: Any) -> Script:
    """Return what answers an operation by these members, and carries nothing out."""
    return lambda _sent, _carry_out: httpx.Response(200, json=members)
