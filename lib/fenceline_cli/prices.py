"""AWS's prices in US dollars: list prices of us-east-1, first tier, without free tiers and taxes.

Rule: each price is here and nowhere else. The prices were written down on DATE from public descriptions of AWS's
prices, and not fetched from AWS. Compare them with aws.amazon.com/pricing before money depends on them, and set DATE
again.
"""

from __future__ import annotations

DATE = "2026-11-21"
REGION = "us-east-1"

MILLION = 1_000_000
GIB = 1024**3
GB = 1000**3

# Amazon S3, Standard
S3_PUT = 0.005 / 1_000  # also lists
S3_GET = 0.0004 / 1_000
S3_GIB_MONTH = 0.023

# Amazon DynamoDB, on demand: a write unit is 1 KiB, in a transaction two; a strongly consistent read unit is 4 KiB
DYNAMODB_WRITE_UNIT = 0.625 / MILLION
DYNAMODB_READ_UNIT = 0.125 / MILLION

# AWS Lambda, arm64
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_SECOND = 0.0000133334

# API Gateway, HTTP API: a request is 512 KiB
API_REQUEST = 1.00 / MILLION
API_REQUEST_BYTES = 512 * 1024

# Amazon SQS, standard queues: a send, a receive or a delete of up to 64 KiB
SQS_REQUEST = 0.40 / MILLION

# Traffic to another region of AWS; between us-east-1 and us-east-2 it is half of that
TRANSFER_GB = 0.02

# CloudWatch
LOG_GB = 0.50
METRIC_MONTH = 0.30
ALARM_MONTH = 0.10
DASHBOARD_MONTH = 3.00

# These are assumed, because they cannot be counted here. Change them to what you measure.
LAMBDA_GB = 1_769 / 1024
APPEND_MS = {1: 25, 64: 30, 1024: 80}  # a produce request by KiB: nearly all of it is S3's time
READ_MS = 60  # a page of 1 MiB
LOG_BYTES = 1_100  # for each request: Lambda's three lines, the gateway's one, and the function's own
LOOK_MS = 20  # a poll of up to 32 partitions that is not held and finds nothing: side by side, two calls after another
SEGMENTS_MS = 15  # a peer asks for segments, or for a topic
REPLICATE_MS = {"found": 120, "nothing": 40}  # a look at a partition: the peers are asked, and segments fetched
# Lambda polls a queue five times at once, for 20 s each. AWS polls less only where no maximum of calls at once is set.
SQS_POLLS_PER_MONTH = 5 * 3 * 60 * 24 * 30
NOTIFY_MS = 15  # a call that informs the other regions of a new segment
SEGMENT_ENTRY_BYTES = 1_500  # for each segment of a list: most is its signed URL
METRICS, ALARMS = 13, 25
PEER_METRICS, PEER_ALARMS = 4, 10  # so many more in a region with peers
SWEEP_MS = 300  # a run of the sweeper over few partitions


def function_dollars(duration_ms: float) -> float:
    """Return the cost of one call of a function, with its lines in the log."""
    time = LAMBDA_GB_SECOND * LAMBDA_GB * duration_ms / 1_000
    return LAMBDA_REQUEST + time + LOG_GB * LOG_BYTES / GB
