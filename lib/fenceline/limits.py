"""The limits of the system, in one place (DESIGN.md, section 12).

A limit that clients see stands in API.md, too. Units are in the names.
"""

MIB = 1024 * 1024

# Requests: of the local server; a gateway's own limit for a request's line and headers is 10,240 bytes
URL_BYTES_MAX = 16 * 1024
HEADER_BYTES_MAX = 32 * 1024

# Produce
BODY_BYTES_MAX = 5_600_000  # 4 MiB in base64, as it passes API Gateway and Lambda
MESSAGE_BYTES_DEFAULT = 1 * MIB
MESSAGE_BYTES_MAX = 4 * MIB
DECOMPRESSED_BYTES_MAX = 64 * MIB  # what one batch may grow to when it is decoded
PARTITIONS_PER_PRODUCE_MAX = 50
PARTITIONS_BY_KEY_MAX = 2_000  # that the keys of one request lead to: the answer then stays below REPLY_BYTES_MAX
RECORD_ERRORS_BY_KEY_MAX = 1_000  # of all partitions of one request together, but for one of each
SEGMENT_BYTES_MAX = 8 * MIB  # a group commit takes no further batch beyond this
GROUP_BATCHES_MAX = 1_000
PRODUCERS_CACHED_MAX = 20_000  # in one partition's memory; the rest is in items
PRODUCER_WINDOW_BATCHES = 5  # Kafka remembers as many
RECORD_ERRORS_MAX = 100  # named in one problem; it says how many there are
PROBLEM_CHARS_MAX = 4_000  # of each text in a problem, which may repeat what was sent

# Read
RECORDS_DEFAULT = 500
RECORDS_MAX = 10_000
BYTES_DEFAULT = 1 * MIB
BYTES_MAX = 4 * MIB
REPLY_BYTES_MAX = 4 * MIB
GATEWAY_BYTES_MAX = 6_000_000  # Lambda takes 6 MB of answer, as its gateway is given it, and its headers
WAIT_MS_MAX = 20_000
LIST_DEFAULT = 100
LIST_MAX = 1_000
SEGMENTS_MAX = 100
OFFSETS_MAX = 100  # partitions of a topic in one answer

SEGMENT_CACHE_BYTES = 32 * MIB
UNPACKED_CACHE_BYTES = 64 * MIB  # of batches that a page ended in, decompressed; the largest there may be fits
UNPACKED_BATCHES_MAX = 1_000
UNPACKED_PLACES_MAX = 64  # at which pages ended, remembered of one batch
SEGMENT_CACHED_BYTES = 4_096  # that one of them counts beside its body: what Python keeps of the smallest
PAGE_SEGMENTS_MAX = 512  # that one page reads at most
INDEX_SEGMENTS_MAX = 20_000  # whose place is remembered, for each partition
INDEX_METADATA_MAX = 1_000  # segments whose metadata is remembered, for each partition
FETCH_SEGMENTS = 32  # fetched side by side

# Topics
PARTITIONS_MAX = 10_000
TOPIC_NAME_CHARS_MAX = 249
REGIONS_MAX = 8  # of one topic

TOPICS_CACHED_MAX = 10_000
APPENDERS_CACHED_MAX = 10_000  # partitions in one process's memory, at 7 KB each; as many as one topic has

# Clocks
ITEM_AGE_MS_MAX = 60_000  # I4, I7: how old a look at topic and head may be
CHECKPOINT_SEGMENTS = 16
CHECKPOINT_MS = 10_000
STATE_MS = 600_000  # between two objects under state/ of a partition
STATE_SEGMENTS_MAX = 2_000  # read for one of them in one request
STATE_REQUEST_MS = 5_000  # that one of them may take in one request
GC_GRACE_MS = 3_600_000
URL_MS = 3_600_000  # how long a segment's URL can be fetched; API.md promises ten minutes
POLL_FIRST_MS = 50
POLL_LAST_MS = 1_000
POLLS_OF_A_PROCESS_MAX = 1_984  # held at once by a local server, each in a thread
POLLS_OF_A_FUNCTION = 100  # held at once by a deployed one, unless its deployment says how many

# The sweeper
SWEEP_MS = 60_000  # between two runs of a local server's; one of them may take half of it
SWEEP_DELETES_MAX = 50_000  # in one run
SWEEP_THOROUGH_MS = 3_600_000  # between two rounds that look for what no item tells of, too
SWEEP_STATE_SEGMENTS_MAX = 20_000  # read for one object under state/ in one run
SWEEP_RETENTION_READS_MAX = 20_000  # of one partition's segments, for their age, in one run
SWEEP_FOLD_SEGMENTS = 512  # folded between two checkpoints of a partition that fell behind
SWEEP_COMPACTION_BYTES_MAX = 256 * MIB  # read by one compaction within a run
SWEEP_COMPACTION_LATE_BYTES_MAX = 16 * MIB  # read by one that is begun in a run's second half
CLOCK_MS = 600_000  # after which an object made to ask for the store's time is nobody's
LAPSE_MARGIN_MS = 3_600_000  # a producer's item outlives its state by so much: clocks differ

# Compaction
COMPACTED_FILE_BYTES_MAX = 64 * MIB  # one file of a view; also the most that is held of it before it is created
COMPACTED_BLOCK_BYTES = 2 * MIB  # what a reader fetches of a file at once; its index rides in 2 KiB of metadata
COMPACTION_KEYS_MAX = 2_000_000  # remembered in one pass, at 111 to 171 bytes each; a log with more takes several
COMPACTION_FETCH_BYTES = 16 * MIB  # of segments, held at once
COMPACTION_DIRTY_RATIO = 0.5  # Kafka's `min.cleanable.dirty.ratio`
COMPACTION_REQUEST_BYTES_MAX = 64 * MIB  # read by a compaction within the request that asks for it
COMPACTION_FUNCTION_BYTES_MAX = 1024 * MIB  # read by one within one function's time; a larger one is for Spark
COMPACTION_TRAIL_MS = 300_000  # between two remembered horizons that were in force

# Verify
VERIFY_RANGE_SEGMENTS = 256  # checked by one thread or process at a time, and then folded in order
VERIFY_RANGE_BYTES = 32 * MIB

# Sessions and exclusive access
LEASE_MS_DEFAULT = 30_000
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 300_000
LEASE_GRACE_MS = 500  # a lease counts as lapsed so long after its time
SESSION_KEPT_MS = 86_400_000  # an ended session is remembered for so long
HOLDS_MAX = 128  # partitions that one session has write access to
HOLDS_KEPT_MAX = 256  # also of what it gave up, as long as it might still have to be fenced
CLAIM_PARTITIONS_MAX = 32
SESSIONS_PER_PARTITION_MAX = 100  # with shared access, or waiting, each; dead ones are pruned at each claim
WANTED_MS = 2_000  # how long a session that is in somebody's way counts as wanted
HOLD_BACK_MS = 1_000  # how long its creates wait then
PRODUCER_NAME_CHARS_MAX = 249
CLIENT_NAME_BYTES_MAX = 256
SESSIONS_CACHED_MAX = 10_000  # in one process's memory
SESSION_ENTRIES_CACHED_MAX = 200_000  # what these hold and own together, at 200 bytes each

# Producer ids
PRODUCER_IDS_PER_BLOCK = 1_000
PRODUCER_IDS_AFTER_REBUILD = 1_000_000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Subscriptions
SUBSCRIPTION_NAME_CHARS_MAX = 249  # of groups, too
ACKNOWLEDGED_PER_REQUEST_MAX = 100_000
CURSOR_CHUNK_RANGES = 2_048  # in one item: 4 to 37 KB
OPEN_RANGES_MAX = 1_000_000  # of one cursor; no limit for the items, but nobody could read them
CURSORS_SHOWN_DEFAULT = 100
PARTITIONS_PER_COMMIT_MAX = 32  # three items each and the session fit one transaction
METADATA_BYTES_MAX = 4_096
SLIDE_SEGMENTS_MAX = 64  # read in one request to move a mark over markers and aborted records
BACKLOG_SEGMENTS_MAX = 2_000  # read in one request to tell markers from records within acknowledged ranges
UNOWNED_MS = 3_600_000  # how long a creation of a subscription may take before it is undone

# Ownership
RESOURCES_PER_OWN_MAX = 32
RESOURCE_BYTES_MAX = 1_024
GROUP_BYTES_MAX = 249
OWNED_BYTES_MAX = 256 * 1024  # names of what one session owns; the rest of its item is for what it holds
SESSION_BYTES_MAX = 320 * 1024  # of a session's item, in the largest form that it may end in; it grows no further
GENERATION_MAX = 2**53 - 1
FENCE_MS = 20_000  # that one partition's fence may take in one request

# Item store
TRANSACTION_ITEMS_MAX = 100
TRANSACTION_BYTES_MAX = 4 * MIB
ITEM_BYTES_MAX = 400 * 1024
