"""What a person reads of each operation: its name, its group, what it does, and one example.

Rule: `openapi.OPERATIONS` says what an operation takes and returns; this module says it in words. A test holds every
example against the schema that it is an example of. An operation that is missing here is a `KeyError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_PARTITION = "/v1/topics/{topic}/partitions/{partition}"
_PRODUCER = "/v1/topics/{topic}/producers/{producer_name}"
_SUBSCRIPTION = "/v1/topics/{topic}/subscriptions/{name}"

TAGS: Mapping[str, str] = {
    "Topics": "Create, list, change and delete topics; trim and compact their partitions.",
    "Records": "Append records, and read them back.",
    "Producers": "Idempotent producer ids, and producers that claim write access to partitions.",
    "Sessions": "Leases. A session stands for a connection: it is renewed, closed, severed, or it expires.",
    "Ownership": "Locks with generations and fencing tokens, on partitions or on any other name.",
    "Subscriptions": "Named cursors: read what is not acknowledged, acknowledge it, seek.",
    "Groups": "Committed offsets, as in Kafka consumer groups. A group is a subscription.",
    "Service": "The service itself: health, and this contract.",
}


@dataclass(frozen=True, slots=True)
class Described:
    """One operation in words.

    Args:
        operation_id: The name that generated clients give it.
        description: What the caller has to know; one paragraph.
        query: An example of the query.
        body: An example of the JSON body.
        answer: An example of the first answer's JSON body.
        parameters: What a query parameter means here, where ``PARAMETERS`` says something else, or nothing.
    """

    operation_id: str
    tag: str
    description: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    answer: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)


_SESSION_ID = "5f0c8a4e1d2b4c6f9a7e3b1d0c5f8a2e"
_TOPIC = {
    "name": "orders",
    "topic_id": "0b6f1f8e5c8f4d0f8f5d1c9a7e3b2d4c",
    "partitions": 4,
    "config": {"retention.ms": 86_400_000},
    "regions": ["us-east-1"],
    "created_at": 1_700_000_000_000,
}
_APPENDED = {
    "base_offset": 0,
    "next_offset": 1,
    "count": 1,
    "duplicate": False,
    "topic_epoch": -1,
    "expected_offset_checked": False,
    "timestamp": -1,
}
_BOUNDS = {"log_start_offset": 0, "next_offset": 1, "last_stable_offset": 1}
_PAGE = {
    "records": [
        {
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "key": "ann",
            "value": "1 book",
            "headers": [["source", "web"]],
            "topic_epoch": -1,
        }
    ],
    "encoding": "utf8",
    "position": 1,
    **_BOUNDS,
}
_NAMED_PRODUCER = {
    "producer_name": "loader",
    "session_id": _SESSION_ID,
    "access_mode": "Exclusive",
    "state": "granted",
    "topic_epochs": {"0": 3},
    "next_offsets": {"0": 1},
    "expires_at": 1_700_000_030_000,
    "client_name": "web-3:4711",
    "since": 1_700_000_000_000,
}
_SUBSCRIPTION_ENTRY = {"name": "billing", "topic": "orders", "replicate_subscription_state": False}
_SHOWN_SUBSCRIPTION = {
    **_SUBSCRIPTION_ENTRY,
    "partitions": [{"partition": 0, "mark_delete_offset": 0, "individually_acknowledged": [], "backlog": 1}],
    "has_more": False,
}
_COMMITTED = [{"topic": "orders", "partition": 0, "offset": 1, "metadata": ""}]

# What a parameter of the path is, everywhere, and an example of it.
PATH_PARAMETERS: Mapping[str, tuple[str, Any]] = {
    "topic": ("The topic's name.", "orders"),
    "partition": ("The partition's number, from 0.", 0),
    "name": ("The subscription's name.", "billing"),
    "group": ("The group's name.", "billing"),
    "session_id": ("The session's id.", _SESSION_ID),
    "producer_name": ("The producer's name.", "loader"),
}

# What a parameter of the query means, unless its operation says something else.
PARAMETERS: Mapping[str, str] = {
    "offset": "Where to start. Give exactly one of `offset`, `timestamp` and `tail_offset`.",
    "timestamp": "Start at the first record with this time or a later one, in milliseconds since the epoch.",
    "tail_offset": "Start this many offsets before the end of the log.",
    "max_records": "The most records to return.",
    "max_bytes": "The most bytes of keys, values and header values to return.",
    "wait_ms": "How long to hold an empty answer back, in milliseconds. 0 answers at once.",
    "isolation": "`read_committed` returns no records of open or aborted transactions.",
    "encoding": "How the answer shows keys, values and header values.",
    "compacted": "Whether to read the compacted view: the newest record of each key. It takes `offset` only.",
    "group": "The group that the caller acts for. Leaving it out is not the same as naming any group.",
    "session_id": "The caller's session. It is required where the resource has an owner.",
    "limit": "The most entries to return.",
    "prefix": "Only names that begin with this.",
    "start_after": "Continue after this name.",
    "start_partition": "The first partition to show.",
    "start_offset": "Within the first partition: show only what lies at or behind this offset.",
    "origin": "`own` leaves replicated segments out.",
    "acks": "For a binary batch: as the field of the JSON body.",
    "expected_offset": "For a binary batch: as the field of the JSON body; a list is separated by commas.",
    "topic_epoch": "For a binary batch: the epoch that the session was granted.",
    "transactional_id": "For a binary batch: as the field of the JSON body.",
    "topic": "Only offsets of this topic.",
    "partition": "Only offsets of this partition.",
    "require_stable": "Whether to refuse offsets that an open transaction may still change.",
    "resource": "The name to look up: `TOPIC/PARTITION`, or any other string.",
}

DESCRIBED: Mapping[tuple[str, str], Described] = {
    ("POST", "/v1/topics"): Described(
        "createTopic",
        "Topics",
        "Creates a topic with its partitions and its configuration. Configuration names are Kafka's.",
        body={"name": "orders", "partitions": 4, "config": {"retention.ms": 86_400_000}},
        answer=_TOPIC,
    ),
    ("GET", "/v1/topics"): Described(
        "listTopics",
        "Topics",
        "Lists topics in byte order of their names. Where `has_more` is true, continue with `start_after`.",
        query={"prefix": "ord"},
        answer={"topics": [_TOPIC], "has_more": False},
    ),
    ("GET", "/v1/topics/{topic}"): Described(
        "getTopic", "Topics", "Shows a topic. `config` has only what was set.", answer=_TOPIC
    ),
    ("PATCH", "/v1/topics/{topic}"): Described(
        "updateTopic",
        "Topics",
        "Changes what the body names and keeps the rest. `null` returns a setting to its default. "
        "The number of partitions only grows.",
        body={"config": {"retention.ms": None, "cleanup.policy": "compact"}},
        answer={**_TOPIC, "config": {"cleanup.policy": "compact"}},
    ),
    ("DELETE", "/v1/topics/{topic}"): Described(
        "deleteTopic",
        "Topics",
        "Deletes a topic. Its name is unknown from the answer on, and can be created again at once.",
    ),
    ("POST", f"{_PARTITION}/records"): Described(
        "appendRecords",
        "Records",
        "Appends one batch, whole or not at all. With `expected_offset` it lands exactly there or nowhere. "
        "A batch that a Kafka producer encoded can be sent as it is, under its own content type.",
        body={"records": [{"key": "ann", "value": "1 book", "headers": [["source", "web"]]}]},
        answer=_APPENDED,
        parameters={"session_id": "For a binary batch: the session that was granted the partition."},
    ),
    ("POST", "/v1/produce"): Described(
        "appendBatches",
        "Records",
        "Appends up to 50 batches, each to another partition. Each succeeds or fails by itself; "
        "`results` are in the order of the request.",
        body={
            "partitions": [
                {"topic": "orders", "partition": 0, "records": [{"key": "ann", "value": "1 book"}]},
                {"topic": "orders", "partition": 1, "records": [{"key": "bob", "value": "2 books"}]},
            ]
        },
        answer={
            "results": [
                {"topic": "orders", "partition": 0, **_APPENDED},
                {"topic": "orders", "partition": 1, **_APPENDED},
            ]
        },
    ),
    ("POST", "/v1/topics/{topic}/records"): Described(
        "appendByKey",
        "Records",
        "Appends each record to the partition of its key, by Kafka's murmur2. Records without a key share one "
        "partition, chosen at random. Each partition succeeds or fails by itself; `record_partitions` tells where each "
        "record went.",
        body={"records": [{"key": "ann", "value": "1 book"}, {"key": "ann", "value": "2 books"}]},
        answer={
            "results": [{"topic": "orders", "partition": 1, **_APPENDED, "next_offset": 2, "count": 2}],
            "record_partitions": [1, 1],
        },
    ),
    ("GET", f"{_PARTITION}/records"): Described(
        "readRecords",
        "Records",
        "Reads a page. `position` is where to read next. Reading at `next_offset` returns an empty page. "
        "With the binary type in `Accept` the answer is whole batches as they are stored.",
        query={"offset": 0},
        answer=_PAGE,
        parameters={"session_id": "The session that owns the partition for `group`."},
    ),
    ("GET", f"{_PARTITION}/offsets"): Described(
        "getOffsets",
        "Records",
        "Shows where a partition begins and ends. With `timestamp` it returns the first record at that time or later.",
        answer={**_BOUNDS, "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0},
        parameters={"timestamp": "Find the first record with this time or a later one, in milliseconds."},
    ),
    ("GET", "/v1/topics/{topic}/offsets"): Described(
        "listOffsets",
        "Records",
        "Shows where up to 100 partitions of a topic begin and end. With `timestamp` it returns, of each, the first "
        "record at that time or later.",
        query={"start_partition": 0},
        answer={
            "topic_id": _TOPIC["topic_id"],
            "partitions": [
                {"partition": 0, **_BOUNDS, "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0}
            ],
            "has_more": False,
        },
        parameters={"timestamp": "Find the first record with this time or a later one, in milliseconds."},
    ),
    ("GET", f"{_PARTITION}/segments"): Described(
        "listSegments",
        "Records",
        "Lists the objects that hold a partition. Each `url` can be fetched without credentials for ten minutes.",
        query={"offset": 0},
        answer={
            "segments": [
                {
                    "base_offset": 0,
                    "next_offset": 1,
                    "bytes": 512,
                    "url": "https://example.com/log/segment",
                    "origin": None,
                    "records": 1,
                    "aborted": [],
                }
            ],
            "has_more": False,
            "topic_id": _TOPIC["topic_id"],
            **_BOUNDS,
        },
        parameters={"offset": "Start with the segment that holds this offset; the default is the log start."},
    ),
    ("POST", f"{_PARTITION}/trim"): Described(
        "trimPartition",
        "Topics",
        "Deletes the records below an offset, for good. At or below the log start it changes nothing.",
        body={"before_offset": 1},
        answer={"log_start_offset": 1},
    ),
    ("POST", f"{_PARTITION}/compact"): Described(
        "compactPartition",
        "Topics",
        "Starts a compaction of what is below the last stable offset. It is done when `compaction_horizon` is there.",
    ),
    ("POST", "/v1/producer-ids"): Described(
        "createProducerId",
        "Producers",
        "Returns an id that no other producer has. With it and sequence numbers, a batch sent twice is stored once.",
        body={},
        answer={"producer_id": 1_001, "producer_epoch": 0},
    ),
    ("GET", "/v1/topics/{topic}/subscriptions"): Described(
        "listSubscriptions",
        "Subscriptions",
        "Lists the subscriptions of a topic in byte order of their names, without their cursors.",
        answer={"subscriptions": [_SUBSCRIPTION_ENTRY], "has_more": False},
    ),
    ("PUT", _SUBSCRIPTION): Described(
        "putSubscription",
        "Subscriptions",
        "Creates a subscription (201), or changes what the body names of an existing one (200).",
        body={"initial_position": "earliest"},
        answer=_SHOWN_SUBSCRIPTION,
    ),
    ("GET", _SUBSCRIPTION): Described(
        "getSubscription",
        "Subscriptions",
        "Shows a subscription with its cursors. `mark_delete_offset` is the first offset not acknowledged in order.",
        answer=_SHOWN_SUBSCRIPTION,
    ),
    ("DELETE", _SUBSCRIPTION): Described(
        "deleteSubscription", "Subscriptions", "Deletes a subscription with all of its cursors."
    ),
    ("GET", f"{_SUBSCRIPTION}/records"): Described(
        "readSubscription",
        "Subscriptions",
        "Reads a page of the records that the subscription has not acknowledged, from its mark on.",
        query={"partition": 0},
        answer=_PAGE,
        parameters={
            "offset": "Where to start, not below the mark; the default is the mark.",
            "partition": "The partition to read; the default is 0.",
            "session_id": "The session that owns the partition for the group of this name.",
        },
    ),
    ("POST", f"{_SUBSCRIPTION}/acknowledgements"): Described(
        "acknowledgeRecords",
        "Subscriptions",
        "Acknowledges every record up to `cumulative`, or the `individual` ones. Give exactly one of the two.",
        body={"partition": 0, "cumulative": 0},
        answer={"mark_delete_offset": 1},
    ),
    ("POST", f"{_SUBSCRIPTION}/seek"): Described(
        "seekSubscription",
        "Subscriptions",
        "Sets the mark, also backwards, and forgets individual acknowledgements. "
        "Give exactly one of `offset` and `timestamp`.",
        body={"partition": 0, "offset": 0},
        answer={"mark_delete_offset": 0},
    ),
    ("GET", "/v1/groups/{group}/offsets"): Described(
        "getGroupOffsets",
        "Groups",
        "Returns the offsets that a group has committed, of every topic or of one. An unknown group has none.",
        query={"topic": "orders"},
        answer={"offsets": _COMMITTED, "has_more": False},
    ),
    ("POST", "/v1/groups/{group}/offsets"): Described(
        "commitGroupOffsets",
        "Groups",
        "Commits offsets of up to 32 partitions, all of them or none. An offset is the next one to read.",
        body={"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]},
        answer={},
    ),
    ("POST", "/v1/sessions"): Described(
        "createSession",
        "Sessions",
        "Creates a session. It expires `lease_ms` after its last renewal.",
        body={"lease_ms": 30_000, "client_name": "web-3:4711"},
        answer={"session_id": _SESSION_ID, "lease_ms": 30_000, "expires_at": 1_700_000_030_000},
    ),
    ("GET", "/v1/sessions/{session_id}"): Described(
        "getSession",
        "Sessions",
        "Shows whether a session is live, and which partitions and resources it holds.",
        answer={
            "session_id": _SESSION_ID,
            "lease_ms": 30_000,
            "expires_at": 1_700_000_030_000,
            "client_name": "web-3:4711",
            "since": 1_700_000_000_000,
            "state": "live",
            "holds": [{"group": None, "resource": "orders/0"}],
        },
    ),
    ("POST", "/v1/sessions/{session_id}/heartbeat"): Described(
        "renewSession",
        "Sessions",
        "Renews the lease of a live session. A session that another caller severed learns it here.",
        answer={"expires_at": 1_700_000_030_000},
    ),
    ("DELETE", "/v1/sessions/{session_id}"): Described(
        "closeSession", "Sessions", "Ends a session and releases everything that it holds."
    ),
    ("POST", "/v1/topics/{topic}/producers"): Described(
        "claimProducer",
        "Producers",
        "Claims write access to partitions: granted (201), or queued (202) in the mode WaitForExclusive.",
        body={"access_mode": "Exclusive", "partitions": [0], "producer_name": "loader"},
        answer={"producer": _NAMED_PRODUCER},
    ),
    ("GET", "/v1/topics/{topic}/producers"): Described(
        "listProducers",
        "Producers",
        "Lists the producers of a topic, and those that wait in line.",
        answer={"producers": [_NAMED_PRODUCER], "waiting": [], "has_more": False},
    ),
    ("GET", _PRODUCER): Described(
        "getProducer",
        "Producers",
        "Shows a producer. With its own `session_id` the request is a poll, which keeps a queued producer in line.",
        query={"session_id": _SESSION_ID},
        answer={"producer": _NAMED_PRODUCER},
        parameters={"session_id": "The session that made the claim."},
    ),
    ("DELETE", _PRODUCER): Described(
        "closeProducer",
        "Producers",
        "Ends a producer: it gives up its write access, or its place in line.",
        query={"session_id": _SESSION_ID},
        parameters={"session_id": "The session that made the claim."},
    ),
    ("POST", "/v1/own"): Described(
        "ownResources",
        "Ownership",
        "Takes the ownership of resources, all of them or none. A higher `generation` severs the owner before it.",
        body={"session_id": _SESSION_ID, "group": "billing", "resources": [{"resource": "orders/0", "generation": 3}]},
        answer={"group": "billing", "resources": [{"resource": "orders/0", "generation": 3, "fencing_token": 7}]},
    ),
    ("POST", "/v1/own/release"): Described(
        "releaseResources",
        "Ownership",
        "Releases resources. Those that the session does not own are passed over.",
        body={"session_id": _SESSION_ID, "group": "billing", "resources": ["orders/0"]},
    ),
    ("GET", "/v1/own"): Described(
        "getOwnership",
        "Ownership",
        "Shows the owner of a resource. A resource that was never owned has generation 0 and no session.",
        query={"resource": "orders/0", "group": "billing"},
        answer={
            "resource": "orders/0",
            "group": "billing",
            "generation": 3,
            "fencing_token": 7,
            "session_id": _SESSION_ID,
            "client_name": "web-3:4711",
            "since": 1_700_000_000_000,
            "until": 1_700_000_030_000,
        },
    ),
    ("GET", "/v1/health"): Described(
        "getHealth",
        "Service",
        "Says that the service answers, with its region and version. It asks no store.",
        answer={"status": "ok", "region": "us-east-1", "version": "0.1.0"},
    ),
    ("GET", "/v1/openapi.json"): Described("getOpenapi", "Service", "Returns the OpenAPI document of this contract."),
    ("GET", "/"): Described(
        "getLinks",
        "Service",
        "Says what answers here, and where its contract is. A browser gets the page of the contract.",
        answer={
            "name": "fenceline",
            "version": "0.1.0",
            "links": {"openapi": "/v1/openapi.json", "docs": "/docs", "health": "/v1/health", "topics": "/v1/topics"},
        },
    ),
    ("GET", "/docs"): Described("getDocs", "Service", "Returns the contract as a page for people, without scripts."),
}

# What a schema is, and what its less plain members mean: "Schema" or "Schema.member".
SCHEMAS: Mapping[str, str] = {
    "Acks": "What to wait for: -1 or `all`, 1, or 0. With 0 the answer is 202 and tells nothing of the append.",
    "AccessMode": "How a producer shares its partitions with others (PIP-68).",
    "Appended": "Where a batch was appended.",
    "Appended.duplicate": "Whether this batch was stored before; then the answer is the first one's.",
    "Appended.next_offset": "The next offset of the partition after this batch.",
    "Claim": "A claim for write access.",
    "Claim.topic_epochs": "By partition the epochs of a producer that reconnects.",
    "Config": "A topic's settings that were set, by Kafka's names.",
    "ConfigChange": "Settings to change, by Kafka's names; `null` returns one to its default.",
    "Encoding": "How keys, values and header values are written: as text, or in base64.",
    "Isolation": "Whether records of open and aborted transactions are shown.",
    "NamedProducer": "A producer that has write access, or waits for it.",
    "NamedProducer.queue_position": "Its place in line; 0 is the next.",
    "Page": "Records, and where to read next.",
    "Page.position": "The offset to read next, past records that are not shown.",
    "Problem": "An error (RFC 9457). `next_step` says what the caller can do: fix, retry, check or stop.",
    "Produce": "One batch of records.",
    "Produce.expected_offset": "The offset that the batch must land at, or one for each record; -1 is not checked.",
    "Produce.transactional_id": "The transaction that the batch belongs to.",
    "Producer": "Makes a batch idempotent: sent twice, it is stored once.",
    "RecordIn": "A record to append. A `value` of null is a tombstone.",
    "RecordIn.timestamp": "Milliseconds since the epoch; the default is the time of the append.",
    "RecordOut": "A stored record.",
    "Segment": "One object of a partition's log.",
    "Session": "The session that was granted the partition, and the epoch of the grant.",
    "Subscription": "A named cursor in each partition of a topic.",
    "Topic": "A topic.",
    "Topic.created_at": "Milliseconds since the epoch.",
}
