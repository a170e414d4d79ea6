"""What the admin function takes and answers about topics in several regions. `admin` includes these routes."""

from __future__ import annotations

from fenceline import limits
from fenceline_http.declared import Body, Nothing, Query, optional, required
from fenceline_http.fields import TEXT, integer, size
from fenceline_http.json_schema import BOOLEAN, STRING, TEXT_OR_NULL, Named, Schema, array, described, nullable, obj
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations.shared import KNOWN, LIMIT_TEXT, PARTITION, STORES, TOPIC, WRITES
from fenceline_http.route import Route
from fenceline_http.schemas import OFFSET, REGION_NAME

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

    region: str = required(TEXT.shown(REGION_NAME))
    to_offset: int = required(integer())


# What is answered


def _number_or_null(text: str) -> Schema:
    return described(nullable(integer_schema()), text)


_ENTRY = Named(
    "RegionStatus",
    obj(
        {
            "region": STRING,
            "connected": described(BOOLEAN, "Whether its last answer for this topic is younger than 10 s."),
            "suspended": BOOLEAN,
            "lag_records": _number_or_null("How many of its own committed records are not here."),
            "lag_ms": _number_or_null("The age of the oldest of them."),
            "last_seen_at": _number_or_null("When it last answered."),
            "answered_at": _number_or_null("When it last answered for a snapshot."),
            "problem": described(TEXT_OR_NULL, "What is wrong with it."),
        }
    ),
    "Another region of a topic, as the region that was asked sees it.",
)
_PARTITION = integer_schema(0, limits.PARTITIONS_MAX - 1)
_GAP = Named(
    "Gap",
    obj(
        {
            "partition": _PARTITION,
            "region": STRING,
            "from_offset": OFFSET,
            "to_offset": OFFSET,
            "records": integer_schema(),
        }
    ),
    "Records of a region that it no longer keeps, and that were not taken. Offsets are that region's.",
)
_SNAPSHOT = Named(
    "Snapshot",
    obj(
        {
            "snapshot_id": STRING,
            "partition": _PARTITION,
            "local_offset": OFFSET,
            "offsets": described(
                {"type": "object", "additionalProperties": OFFSET},
                "By region: what lies below this offset there lies below `local_offset` here.",
            ),
            "completed_at": integer_schema(),
            "final": described(BOOLEAN, "Whether no other snapshot of the same records would say more."),
        }
    ),
    "A completed snapshot.",
)
_PENDING = Named(
    "PendingSnapshot",
    obj({"snapshot_id": STRING, "partition": _PARTITION, "started_at": integer_schema(), "waiting_for": array(STRING)}),
    "A snapshot that is not complete, and the regions that it waits for.",
)
_STATUS = Named(
    "Replication",
    obj(
        {
            "region": STRING,
            "regions": array(_ENTRY),
            "gaps": array(_GAP),
            "skipped_records": described(integer_schema(), "How many records were skipped, in the partitions shown."),
            "snapshots": array(_SNAPSHOT),
            "pending": array(_PENDING),
            "has_more": BOOLEAN,
        }
    ),
    "A topic in several regions, as the region that was asked sees it.",
)

_SNAPSHOT_EXAMPLE = "9d1f6a0c2b7e4f5d8c3a1e0b6d9f7a24"
_ENTRY_EXAMPLE = {
    "region": "b",
    "connected": True,
    "suspended": False,
    "lag_records": 0,
    "lag_ms": 0,
    "last_seen_at": 1_700_000_000_900,
    "answered_at": 1_700_000_000_200,
    "problem": None,
}


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
        answers={200: _ENTRY},
        codes=(*KNOWN, *WRITES),
        answer={**_ENTRY_EXAMPLE, "suspended": is_suspended},
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
        answers={200: _STATUS},
        codes=(*KNOWN, *STORES),
        answer={
            "region": "a",
            "regions": [_ENTRY_EXAMPLE],
            "gaps": [],
            "skipped_records": 0,
            "snapshots": [
                {
                    "snapshot_id": _SNAPSHOT_EXAMPLE,
                    "partition": 0,
                    "local_offset": 43,
                    "offsets": {"b": 17},
                    "completed_at": 1_700_000_000_300,
                    "final": True,
                }
            ],
            "pending": [],
            "has_more": False,
        },
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
        answers={202: Named("StartedSnapshot", obj({"snapshot_id": STRING}))},
        codes=(*KNOWN, *WRITES),
        answer={"snapshot_id": _SNAPSHOT_EXAMPLE},
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
        answers={200: Named("SkippedGap", obj({"skipped_records": integer_schema()}))},
        codes=(*KNOWN, *WRITES),
        body={"region": "b", "to_offset": 30},
        answer={"skipped_records": 12},
    ),
)
