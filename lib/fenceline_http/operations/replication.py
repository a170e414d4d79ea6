"""The admin function's requests and answers about topics in several regions. `admin` includes these routes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.model.kinds import RegionName
from fenceline.model.region import RegionStatus, ReplicationStatus, ShownSnapshot
from fenceline_http.json_schema import of_type
from fenceline_http.operations.shared import KNOWN, LIMIT_TEXT, PARTITION, STORES, TOPIC, WRITES
from fenceline_http.request_schema import Body, Nothing, Query, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import TEXT, integer, size

_REPLICATION = f"{TOPIC}/replication"
_REGION = f"{_REPLICATION}/regions/{{region}}"


class ReplicationPage(Query):
    """The partitions whose gaps and snapshots are shown."""

    start_partition: int = optional(integer(), "The first partition to show.", default=0)
    limit: int = optional(
        size(limits.REPLICATION_PARTITIONS_MAX, limits.REPLICATION_PARTITIONS_MAX),
        LIMIT_TEXT,
        default=limits.REPLICATION_PARTITIONS_MAX,
    )


class GapSkip(Body):
    """A gap to pass, with the offset at which it ends."""

    region: str = required(TEXT.shown(of_type(RegionName)))
    to_offset: int = required(integer())


# Answers


class StartedSnapshot(NamedTuple):
    """A snapshot that was asked for."""

    snapshot_id: str


class SkippedGap(NamedTuple):
    """How many records were given up."""

    skipped_records: int


_SNAPSHOT_ID = "9d1f6a0c2b7e4f5d8c3a1e0b6d9f7a24"
_REGION_EXAMPLE = RegionStatus(
    "b",
    connected=True,
    suspended=False,
    lag_records=0,
    lag_ms=0,
    last_seen_at=1_700_000_000_900,
    answered_at=1_700_000_000_200,
    problem=None,
)
_EXAMPLE = ReplicationStatus(
    region="a",
    regions=[_REGION_EXAMPLE],
    gaps=[],
    skipped_records=0,
    snapshots=[ShownSnapshot(_SNAPSHOT_ID, 0, 43, {"b": 17}, 1_700_000_000_300, final=True)],
    pending=[],
    has_more=False,
)


def _switch(verb: str, operation: str, summary: str, description: str, *, is_suspended: bool) -> Route:
    return Route(
        "POST",
        f"{_REGION}/{verb}",
        f"admin.{verb}_region",
        operation=operation,
        tag="Regions",
        summary=summary,
        description=description,
        takes=Nothing,
        answers={200: replace(_REGION_EXAMPLE, suspended=is_suspended)},
        codes=(*KNOWN, *WRITES),
    )


ROUTES = (
    Route(
        "GET",
        _REPLICATION,
        "admin.show_replication",
        operation="getReplication",
        tag="Regions",
        summary="Show a topic in several regions",
        description="Shows how far each other region is behind, and the gaps and snapshots of some partitions. Where "
        f"`has_more` is true, continue at `start_partition` + `limit`, or + {limits.REPLICATION_PARTITIONS_MAX} where "
        "`limit` is larger.",
        takes=ReplicationPage,
        answers={200: _EXAMPLE},
        codes=(*KNOWN, *STORES),
    ),
    Route(
        "POST",
        f"{_REPLICATION}/snapshots",
        "admin.start_snapshot",
        operation="startSnapshot",
        tag="Regions",
        summary="Start a snapshot",
        description="Asks the other regions for a snapshot of every partition, whether anything is new or not. "
        "Suspended regions are not asked.",
        takes=Nothing,
        answers={202: StartedSnapshot(_SNAPSHOT_ID)},
        codes=(*KNOWN, *WRITES),
    ),
    _switch(
        "suspend",
        "suspendRegion",
        "Do not wait for a region",
        "Asks a region for no snapshots of this topic, and takes its records from other regions, too. What the region "
        "itself still answers is taken as before.",
        is_suspended=True,
    ),
    _switch(
        "resume",
        "resumeRegion",
        "Wait for a region again",
        "Asks a region for snapshots of this topic again, and takes its records from that region alone.",
        is_suspended=False,
    ),
    Route(
        "POST",
        f"{PARTITION}/replication/skip",
        "admin.skip_gap",
        operation="skipGap",
        tag="Regions",
        summary="Give up the records of a gap, or a batch that is refused",
        description="Gives up records of a region that it no longer keeps, so that its later ones are taken. "
        "`to_offset` is the gap's. A batch of which `problem` says that it is refused is given up by its end. "
        "The region must answer: otherwise the request is `STORE_UNAVAILABLE`.",
        takes=GapSkip,
        answers={200: SkippedGap(12)},
        codes=(*KNOWN, *WRITES),
        body={"region": "b", "to_offset": 30},
    ),
)
