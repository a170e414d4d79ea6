"""The limits of the system, in one place ("Limits").

Rule: a limit that clients see is also in the contract. Units are in the names.

Not here: where a limit is enforced.
"""

MIB = 1024 * 1024

# Requests to the local server. A gateway's own limit for a request's line and headers is 10,240 bytes.
URL_BYTES_MAX = 16 * 1024
HEADER_BYTES_MAX = 32 * 1024

# Produce
BODY_BYTES_MAX = 5_600_000  # 4 MiB in base64, as it passes API Gateway and Lambda
MESSAGE_BYTES_DEFAULT = 1 * MIB
MESSAGE_BYTES_MAX = 4 * MIB
DECOMPRESSED_BYTES_MAX = 64 * MIB  # what one batch may grow to when it is decoded
PARTITIONS_PER_PRODUCE_MAX = 50
PARTITIONS_BY_KEY_MAX = 2_000  # to which one request's keys lead: its answer then stays below REPLY_BYTES_MAX
RECORD_ERRORS_BY_KEY_MAX = 1_000  # named for all partitions of one request, in addition to one for each
SEGMENT_BYTES_MAX = 8 * MIB  # a group's batches together
GROUP_BATCHES_MAX = 1_000
OFFER_BYTES_MAX = 16 * 1024  # a batch that other processes may commit, with its expected offsets
OFFERS_PER_WRITE_MAX = 25
OFFERS_READ_MAX = 256  # at once, of one partition
OFFERS_BOUND_MAX = 64  # to one offset
OFFERS_DONE_MAX = 4_096  # remembered by a round, whose item they must fit; beyond that none is bound
OFFER_MS = 20_000  # since an offer was made, after which no process binds it
OFFER_KEPT_MS = 3_600_000  # after which the sweeper deletes an offer that its process left
PRODUCERS_CACHED_MAX = 20_000  # remembered of one partition; the others are in items only
PRODUCER_WINDOW_BATCHES = 5  # as many as Kafka remembers
RECORD_ERRORS_MAX = 100  # named in one problem, which gives the full count, too
PROBLEM_TEXT_CHARS_MAX = 4_000  # each text in a problem, because it may repeat a part of the request

# Read
RECORDS_DEFAULT = 500
RECORDS_MAX = 10_000
BYTES_DEFAULT = 1 * MIB
BYTES_MAX = 4 * MIB
REPLY_BYTES_MAX = 4 * MIB
GATEWAY_BYTES_MAX = 6_000_000  # an answer with its headers, as Lambda passes it to the gateway: 6 MB
WAIT_MS_MAX = 20_000
LIST_DEFAULT = 100
LIST_MAX = 1_000
LISTED_ITEMS_MAX = 10_000  # read by one listing of transactions, whatever fits of them
LISTED_BYTES_MAX = 16 * MIB  # the same, in bytes
SEGMENTS_MAX = 100
SEGMENTS_ABORTED_MAX = 20_000  # aborted transactions in one answer of segments, but for its first segment
PRODUCER_STATES_MAX = 10_000  # in one page: its JSON has at most 2 MB
LAG_ENTRIES_MAX = 50  # topics with totals, or subscriptions with their backlog, in one answer
LAG_PARTITIONS_MAX = 1_000  # partitions that one such answer looks at
READER_SEEN_MS = 60_000  # for which the last reader of a cursor is named to another one
READER_ID_CHARS_MAX = 128
OFFSETS_MAX = 100  # partitions in one answer of a topic's offsets, or of its access
ACCESS_MARKERS_DEFAULT = 20
ACCESS_MARKERS_MAX = 100  # in one answer of a partition's history: as many segments are read
ACCESS_SEGMENTS_LOOKED_AT = 100  # by one such answer, where a marker does not say where the one before it is

SEGMENT_CACHE_BYTES = 32 * MIB
UNPACKED_CACHE_BYTES = 64 * MIB  # decompressed batches inside which a page ended; the largest batch fits
UNPACKED_BATCHES_MAX = 1_000
UNPACKED_PLACES_MAX = 64  # remembered of one batch: places at which pages ended
SEGMENT_ENDS_MAX = 20_000  # ends of transactions remembered of the segments that readers passed last, in 3 MB
SEGMENT_CACHED_BYTES = 4_096  # counted for a cached segment beside its body: what Python needs for the smallest
PAGE_SEGMENTS_MAX = 512  # read for one page
CUT_PAGE_BYTES_MAX = 32 * MIB  # stored bytes, and bytes cut from values, gone through for one page of cut values
INDEX_SEGMENTS_MAX = 20_000  # places remembered for each partition
INDEX_METADATA_MAX = 1_000  # segments' metadata remembered for each partition
INDEX_OWN_RECORDS_MAX = 8  # offsets of each partition with the number of own records, or the chain value, below them
FETCH_SEGMENTS = 32  # fetched side by side

# Topics
PARTITIONS_MAX = 10_000
TOPIC_NAME_CHARS_MAX = 249
REGIONS_MAX = 8  # in one topic's configuration

TOPICS_CACHED_MAX = 10_000
PARTITIONS_CACHED_MAX = 10_000  # partitions in one process's memory, at 7 KB each: as many as a topic can have

# Clocks
ITEM_AGE_MS_MAX = 60_000  # how old a look at topic and head may be (I4, I7)
CHECKPOINT_SEGMENTS = 16
CHECKPOINT_MS = 10_000
STATE_MS = 600_000  # between two objects of a partition under state/
STATE_SEGMENTS_MAX = 2_000  # read in one request for an object under state/
STATE_REQUEST_MS = 5_000  # spent in one request on an object under state/
# I6. Longer than a look is young: ITEM_AGE_MS_MAX. model: Append, "grace is longer"
GC_GRACE_MS = 3_600_000
URL_MS = 3_600_000  # for which a segment's URL works; the contract promises ten minutes
POLL_POSITIONS_MAX = 500  # partitions of one request
POLL_LOOKS_AT_ONCE = 32  # at partitions, by one request
POLL_BODIES_BYTES = 64 * MIB  # which the pages that one request reads side by side may take
POLL_WORK_MS = 8_000  # after which a request that has something to say looks at no further partitions
POLL_AGAIN_MS = 100  # from a look at every partition until a held request looks at them again; then it doubles
POLL_FIRST_MS = 50
POLL_LAST_MS = 1_000
POLLS_OF_A_PROCESS_MAX = 1_984  # held at once by a local server, each in a thread
POLLS_OF_A_FUNCTION = 100  # held at once by a deployed function, unless its deployment sets another number

# The sweeper
SWEEP_MS = 60_000  # between two runs of a local server's sweeper; a run may take half of it
SWEEP_DELETES_MAX = 50_000  # in one run
SWEEP_THOROUGH_MS = 3_600_000  # between two rounds that also look for objects that no item names
SWEEP_STATE_SEGMENTS_MAX = 20_000  # read for one object under state/ in one run
SWEEP_RETENTION_READS_MAX = 20_000  # segments of one partition read in one run, for their age
SWEEP_FOLD_SEGMENTS = 512  # folded between two checkpoints of a partition that fell behind
SWEEP_COMPACTION_BYTES_MAX = 256 * MIB  # read by one compaction within a run
SWEEP_COMPACTION_DECODED_BYTES = 1024 * MIB  # decoded by one round of a compaction within a run
SWEEP_COMPACTION_LATE_BYTES_MAX = 16 * MIB  # read by a compaction that begins in a run's second half
CLOCK_MS = 600_000  # after which an object under clock/ is left over: its sweeper has crashed
LAPSE_MARGIN_MS = 3_600_000  # by which a producer's item outlives its state, because clocks differ
SWEEP_MEETING_MS = 10_000  # spent in one run on one transaction that is due
SWEEP_FOUND_MAX = 5_000  # producer ids whose items one run remembers
TRANSACTION_OVERDUE_MS = 300_000  # for which a transaction is due before the sweeper reports that

# Compaction
COMPACTED_FILE_BYTES_MAX = 64 * MIB  # one file of a view, which is held in memory until it is created
COMPACTED_BLOCK_BYTES = 2 * MIB  # fetched at once by a reader of a file; the blocks' index fits 2 KiB of metadata
# Remembered in one pass, at 111 to 171 bytes each (by timestamp up to 85 more); more keys take more passes.
COMPACTION_KEYS_MAX = 2_000_000
COMPACTION_FETCH_BYTES = 16 * MIB  # segments in memory at once
COMPACTION_DIRTY_RATIO = 0.5  # Kafka's `min.cleanable.dirty.ratio`
COMPACTION_REQUEST_BYTES_MAX = 64 * MIB  # read by a compaction within the request that asks for it
COMPACTION_REQUEST_DECODED_BYTES = 256 * MIB  # decoded within that request; the sweeper does the rest
COMPACTION_FUNCTION_BYTES_MAX = 1024 * MIB  # read by a compaction within one function's time; larger ones need Spark
SEEN_IN_FORCE_MAX = 32  # horizons that a head knows to have been in force, for `delete.retention.ms`
COMPACTION_TRAIL_MS = 300_000  # between two horizons that the head's trail remembers

# Verify
VERIFY_RANGE_SEGMENTS = 256  # checked at once by one thread or process, then folded in order
VERIFY_RANGE_BYTES = 32 * MIB
VERIFY_PAGE_SEGMENTS_MAX = 100  # checked in one request, which ends at VERIFY_RANGE_BYTES, too
VERIFY_PAGE_MS = 8_000  # after which one request checks no further segments
VERIFY_OFFERS_MAX = 500_000  # remembered at once, in 60 MB: each is listed in one segment only

# Sessions and exclusive access
LEASE_MS_DEFAULT = 30_000
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 300_000
LEASE_GRACE_MS = 500  # from a lease's end until it counts as lapsed
SESSION_KEPT_MS = 86_400_000  # for which an ended session is remembered
HOLDS_MAX = 128  # partitions to which one session has write access
HOLDS_KEPT_MAX = 256  # the same, with those that it gave up and that may still have to be fenced
CLAIM_PARTITIONS_MAX = 32
SESSIONS_PER_PARTITION_MAX = 100  # with shared access, and as many waiting; each claim prunes dead ones
WANTED_MS = 2_000  # for which a session counts as wanted after it blocked another session's claim
HOLD_BACK_MS = 1_000  # for which the creates of a wanted session wait
PRODUCER_NAME_CHARS_MAX = 249
CLIENT_NAME_BYTES_MAX = 256  # also an instance id of a group's member
SESSIONS_CACHED_MAX = 10_000  # in one process's memory
SESSION_ENTRIES_CACHED_MAX = 200_000  # holds and ownerships of the cached sessions together, at 200 bytes each

# Producer ids
PRODUCER_IDS_PER_BLOCK = 1_000
PRODUCER_IDS_AFTER_REBUILD = 1_000_000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Transactions
TRANSACTIONAL_ID_BYTES_MAX = 249
TRANSACTION_TIMEOUT_MS_DEFAULT = 60_000
TRANSACTION_TIMEOUT_MS_MAX = 900_000
PRODUCER_EPOCH_MAX = 32_766  # a batch's; only a marker ever has 32767
MARKER_EPOCH_MAX = 32_767
PARTITIONS_PER_ADDITION_MAX = 500
TRANSACTION_PARTITIONS_MAX = 500
TRANSACTION_GROUPS_MAX = 100
TRANSACTION_CURSORS_MAX = 500
TRANSACTION_ITEM_BYTES_MAX = 300 * 1024
TRANSACTIONS_PER_END_MAX = 96  # decided by one write: with the once item 97 of the 100 items that one may have
JOINT_END_BYTES_MAX = 3 * MIB  # all items that one end of several transactions writes and checks
EXTENSION_MS_MAX = 86_400_000  # by which one request moves a transaction's end
TRANSACTION_AHEAD_MS = 900_000  # by which a time may be ahead of the store's clock, and still count
ONCE_NOTE_BYTES_MAX = 1_024
OPEN_TRANSACTIONS_MAX = 5_000  # in a partition, whose head must stay an item
CURSOR_PENDING_OFFSETS_MAX = 32
SENT_OFFSETS_BYTES_MAX = 3 * MIB  # all items that one request of offsets writes
ADMISSION_MS = 60_000  # for which the coordinator's answer admits batches
MARKERS_AT_ONCE = 32  # appended side by side, and as many cursors settled
MEETING_MS = 2_000  # spent by a reader on the transaction that holds it up
MEETING_AGE_MS = 1_000  # since the transaction's begin, and since its decision, before a reader ends what is due
TRANSACTIONAL_ID_MS = 604_800_000  # after which an id without a request expires: 7 days, as in Kafka

# Regions
ORIGINS_MAX = 64  # regions of which one log ever took records, and that a marker may name
ORIGIN_LIVES_MAX = 4  # earlier lives remembered of one region's topic
REGION_STATE_BYTES_MAX = 160 * 1024  # a head's snapshots, and the REQUESTs that are under way
REPLICATED_BYTES_MAX = 1 * MIB  # one segment with another region's batches, unless one batch is larger
REPLICATED_AHEAD_BYTES = 32 * MIB  # a source's segments, fetched before their create
REPLICATED_DECODED_BYTES = 64 * MIB  # a source's batches before another source has its turn; also those of a segment
FORWARDED_DECODED_BYTES_MAX = 1024 * MIB  # one segment that a peer passes on, which is taken whole or not at all
SOURCE_SEGMENTS_LOOKED_AT = 1_000  # by one request for the segments of one origin
SNAPSHOTS_UNDER_WAY_MAX = 8  # in one partition, of each region that asks
SNAPSHOTS_KEPT_MAX = 30  # in the state, and in a cursor
CURSOR_SNAPSHOTS_BYTES_MAX = 32 * 1024  # a cursor's snapshots; eight regions with 30 snapshots each fit
SNAPSHOT_MS = 1_000  # between two that a region asks for by itself
SNAPSHOT_REPEAT_MS_MAX = 60_000  # between two, where nothing has come but the last was not final
SNAPSHOT_UNANSWERED_MS = 30_000  # between two, while one lacks answers
SNAPSHOTS_UNANSWERED_MAX = 4  # that lack answers, after which a region asks for none by itself
SNAPSHOT_REQUEST_MS = 1_000_000  # after which a REQUEST is given up, when another comes
REGION_MARKER_BYTES_MAX = 64 * 1024
UPDATES_PER_MARKER_MAX = 100
ACTIVE_N_STEP_MAX = 1_000_000  # by which an UPDATE may raise the number of an advice
UPDATE_MS = 1_000  # between two UPDATEs that acknowledgements send to one partition, in one process
UPDATES_TICK_MS = 9_000  # spent in one tick on other regions' UPDATEs; the rest is left to the next tick
UPDATE_SEGMENTS_LOOKED_AT = 1_000  # for others' UPDATEs in one tick, and for the first records after one mark
LINK_LEASE_MS = 30_000
LINK_APPEND_MS = 20_000  # for one append of a run, which may end by so much later
LINKS_CACHED_MAX = 20_000  # partitions of which one process remembers what peers answered
PEER_PAUSE_MS = 1_000  # before a peer with a problem is asked again, doubled each time
PEER_PAUSE_MS_MAX = 30_000
REPLICATOR_RUN_MS = 60_000  # after which a run leaves the rest to the next one
PEER_TIMEOUT_MS = 2_000  # for a peer to be asked whether it is connected
PEER_STATUS_AGE_MS = 2_000  # for which a peer's answer is shown without asking again
STATUS_MS = 10_000  # for one peer to be asked for all partitions, in one request
REPLICATION_PARTITIONS_MAX = 100  # in one answer about replication, which so has at most 3.5 MB
CONNECTED_MS = 10_000  # since a peer's last answer, for which it counts as connected

# Subscriptions
SUBSCRIPTION_NAME_CHARS_MAX = 249  # also a group's name
ACKNOWLEDGED_PER_REQUEST_MAX = 100_000
CURSOR_CHUNK_RANGES = 2_048  # in one item, of 4 to 37 KB
CURSOR_RANGES_MAX = 1_000_000  # the items could hold more, but no reader could use them
CURSORS_SHOWN_DEFAULT = 100
PARTITIONS_PER_COMMIT_MAX = 32  # so that three items for each and the session fit one transaction
METADATA_BYTES_MAX = 4_096
SLIDE_SEGMENTS_MAX = 64  # read in one request to move a mark over markers and aborted records
BACKLOG_SEGMENTS_MAX = 2_000  # read in one request to count the markers within acknowledged ranges
HEARD_SUBSCRIPTIONS_MAX = 1_000  # in one topic that one region's UPDATEs made, and that were not used here
HEARD_MS = 30 * 24 * 3_600_000  # since an UPDATE named such a subscription, after which it expires
HEARD_AGAIN_MS = 24 * 3_600_000  # between two notes of when an UPDATE named it
TELL_AGAIN_MS = 7 * 24 * 3_600_000  # after which the other regions hear of a subscription once more
UNOWNED_MS = 3_600_000  # that a subscription's creation may take before the sweeper undoes it

# Ownership
RESOURCES_PER_OWN_MAX = 32
RESOURCE_BYTES_MAX = 1_024
GROUP_BYTES_MAX = 249
SESSION_OWNED_BYTES_MAX = 256 * 1024  # the names of what one session owns; the rest of its item is for its holds
SESSION_BYTES_MAX = 320 * 1024  # a session's item, in the largest form that it may end in
GENERATION_MAX = 2**53 - 1
FENCE_MS = 20_000  # spent in one request on the fence of one partition

# Item store
TRANSACTION_ITEMS_MAX = 100
TRANSACTION_BYTES_MAX = 4 * MIB
ITEM_BYTES_MAX = 400 * 1024

# Groups
MEMBER_ID_CHARS_MAX = 128
MEMBER_TOPICS_MAX = 100  # names and prefixes that one member subscribes to
GROUP_MEMBERS_MAX = 1_000
GROUP_PARTITIONS_MAX = 20_000  # of all topics of one group
GROUP_ITEM_BYTES_MAX = 320 * 1024  # a group's item; what would pass it is refused
SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_DEFAULT, SESSION_TIMEOUT_MS_MAX = 6_000, 45_000, 1_800_000
REBALANCE_TIMEOUT_MS_MIN, REBALANCE_TIMEOUT_MS_DEFAULT, REBALANCE_TIMEOUT_MS_MAX = 1_000, 300_000, 3_600_000
HEARTBEAT_MS = 5_000  # between two heartbeats of a member, or a third of its session time-out if that is less
HEARTBEAT_UNSETTLED_MS = 500  # the same, while the member waits for a partition or is asked for one
MEMBER_GRACE_MS = 1_000  # after the end of a member's lease, before another request removes the member
ASSIGNMENT_MS = 1_000  # between two targets of one group
INITIAL_REBALANCE_DELAY_MS = 200  # for which the first join of an empty classic group waits for more members
CLASSIC_INLINE_BYTES_MAX = 64 * 1024  # of metadata and assignments in a classic group's item; more are in chunks
GROUP_MS = 7 * 24 * 3_600_000  # after which the sweeper deletes a group without members and offsets
MEMBER_LEFT_MS = 3_600_000  # after its lease, when the sweeper deletes the item of a member of no group
