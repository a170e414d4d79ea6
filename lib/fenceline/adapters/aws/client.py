"""Clients of S3 and DynamoDB that never repeat a request by themselves, and the facts that their failures mean.

Rule: a failure of a write is ``Unavailable`` only where the request certainly changed nothing: it never left this
process, or the service refused it with 3xx or 4xx. Every 5xx is ``NoAnswer``, also S3's SlowDown, because no service
promises that such a request was not carried out. Only a request that changes nothing, however often it is sent, is
repeated here.

Not here: sessions, and problems with credentials (``credentials``).
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict, TypeVar

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    InvalidRegionError,
    NoRegionError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from botocore.utils import parse_timestamp

from fenceline.adapters.aws import credentials
from fenceline.adapters.aws.credentials import Sdk
from fenceline.backoff import Backoff
from fenceline.ports import NoAnswer, StoreFact, Unavailable

T = TypeVar("T")

CONNECT_MS = 1_000
ANSWER_MS = 5_000
CONNECTIONS = 64  # kept open; more threads than this open others, and close them after use
REPEATABLE_ATTEMPTS_MAX = 4
BACKOFF = Backoff(first_ms=50, max_ms=1_000)

# Everything that a call of a client may raise. The last one is for an answer that cannot be read.
Failure = (ClientError, BotoCoreError, ResponseParserError)

_MAY_HAVE_ARRIVED = (
    HTTPClientError,  # read time-outs and dropped connections among them
    SSLError,  # even in the midst of an answer
    IncompleteReadError,
    ChecksumError,
    FlexibleChecksumError,
    ResponseParserError,
)
# DynamoDB is carrying out a transaction with this request's token, because a layer below has sent the request twice.
_UNDECIDED = frozenset({"TransactionInProgressException"})
_THROTTLING = frozenset(
    {
        "SlowDown",
        "RequestTimeout",  # from S3: the request did not arrive whole
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "TransactionConflictException",
    }
)

_LOST_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_BAD_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidSignatureException",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


class ClientOptions(TypedDict, total=False):
    """The options of a client. Those that are left out come from the standard AWS variables and files."""

    endpoint_url: str | None
    region: str | None
    connect_ms: int  # for the connection
    answer_ms: int  # for each wait for bytes of the answer
    connections: int  # kept open
    sdk: Sdk  # boto3's session or botocore's


def make_client(service: str, options: ClientOptions, **config: Any) -> Any:
    """Return a client that sends each request once. Threads may share it; a process needs one for each service.

    Args:
        config: More of botocore's ``Config``.

    Raises:
        Unavailable: No client can be made with these settings. The message says what to do.
        ModuleNotFoundError: boto3 is not installed.
    """
    chosen = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=options.get("connect_ms", CONNECT_MS) / 1000,
        read_timeout=options.get("answer_ms", ANSWER_MS) / 1000,
        max_pool_connections=options.get("connections", CONNECTIONS),
        tcp_keepalive=True,
        # Each of the next two saves 3 to 7 % of a request's time in this process: the service checks the parameters
        # anyway, and botocore would compose a user agent of thirty parts for each request.
        parameter_validation=False,
        user_agent="fenceline",
        **config,
    )
    try:
        session, core = credentials.new_session(options.get("sdk", "boto3"))
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
        make = core.create_client if session is core else session.client
        return make(
            service,
            # Python's SDK, alone among AWS's, does not read this variable by itself.
            region_name=options.get("region") or os.environ.get("AWS_REGION"),
            endpoint_url=options.get("endpoint_url"),
            config=chosen,
        )
    except (BotoCoreError, ValueError) as error:
        raise unusable(service, error) from error


def unusable(service: str, error: Exception) -> Unavailable:
    """Return the fact for settings by which a service can't be asked."""
    return Unavailable(f"{_advice(error)}: service={service} error={' '.join(str(error).split())}")


def refusal(status: int, body: str, operation: str) -> ClientError:
    """Return botocore's exception for a refusal by S3, which is in XML, or in any other form if no S3 answered."""
    code, message = (re.search(f"<{name}>([^<]*)</{name}>", body) for name in ("Code", "Message"))
    told: Any = {"Code": code[1] if code else str(status), "Message": message[1] if message else ""}
    return ClientError({"Error": told, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)


def parse_time(text: Any) -> datetime:
    """Return the time in an answer.

    botocore's own parser is not used, because it takes any form, which would be most of the time of a listing.
    """
    try:
        moment = datetime.fromisoformat(text) if text[10] == "T" else parsedate_to_datetime(text)
        if moment.tzinfo is not None:
            return moment
    except (TypeError, ValueError, IndexError):
        pass  # a number, or a form that AWS does not use
    return parse_timestamp(text)  # type: ignore[no-any-return]


def check_client(client: Any) -> None:
    """Refuse a client that repeats requests, because its second try would find its first, and report a rival.

    Raises:
        ValueError: The client repeats requests.
    """
    retries = client.meta.config.retries or {}
    if retries.get("total_max_attempts") != 1:
        raise ValueError('the client must not repeat requests: Config(retries={"total_max_attempts": 1})')


def answered(error: Exception) -> tuple[int, str]:
    """Return the HTTP status and the service's own code of a failure; (0, "") if there was no answer."""
    if not isinstance(error, ClientError):
        return 0, ""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status, error.response.get("Error", {}).get("Code", "")


def fact_of(error: Exception, what: str) -> StoreFact:
    """Return the fact for the failure of a write: nothing was changed, or the outcome is unknown."""
    kind = Unavailable if _changed_nothing(error) else NoAnswer
    return _fact(kind, error, what)


def unavailable(error: Exception, what: str) -> Unavailable:
    """Return the fact for the failure of a request that may be repeated."""
    return _fact(Unavailable, error, what)


def repeated(call: Callable[..., T], **wanted: Any) -> T:
    """Return the result of ``call``, trying again after failures that pass. ``call`` may be made any number of times.

    Raises:
        Exception: The last failure, one of ``Failure``.
    """
    for failures in range(1, REPEATABLE_ATTEMPTS_MAX):
        try:
            return call(**wanted)
        except Failure as error:
            if not _passes(error):
                raise
        pause(failures)
    return call(**wanted)


def pause(failures: int) -> None:
    """Wait before another attempt, after so many that failed."""
    time.sleep(BACKOFF.pause_ms(failures, random.random()) / 1000)


def _changed_nothing(error: Exception) -> bool:
    if isinstance(error, ClientError):
        status, code = answered(error)
        # DynamoDB's throttling is 400, judged before a request is carried out.
        return 300 <= status < 500 and code not in _UNDECIDED
    if isinstance(error, SSLError):
        return "CERTIFICATE_VERIFY_FAILED" in str(error)
    return not isinstance(error, _MAY_HAVE_ARRIVED)


def _passes(error: Exception) -> bool:
    """Return True if the same request may succeed in a moment."""
    if isinstance(error, ClientError):
        status, code = answered(error)
        return code in _THROTTLING or (status >= 500 and code != "NotImplemented")
    if isinstance(error, SSLError):
        return not _changed_nothing(error)
    return isinstance(error, (*_MAY_HAVE_ARRIVED, EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError))


F = TypeVar("F", bound=StoreFact)


def _fact(kind: type[F], error: Exception, what: str) -> F:
    text = str(error)
    if isinstance(error, ClientError):
        refusal = error.response.get("Error", {})
        text = f"{refusal.get('Code', '')} {refusal.get('Message', '')}"
    return kind(f"{_advice(error)}: {what} error={' '.join(text.split())}")


def _advice(error: Exception) -> str:
    """Return the problem and the remedy, in a few words."""
    if (known := credentials.advice_of(error)) is not None:
        return known
    if isinstance(error, NoRegionError):
        return "no AWS region; set AWS_REGION"
    if isinstance(error, InvalidRegionError):
        return "there is no such AWS region; set AWS_REGION"
    if isinstance(error, ValueError) and not isinstance(error, BotoCoreError):
        return "AWS_ENDPOINT_URL is not an address; write it as http://HOST:PORT, or unset it"
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError | SSLError):
        return "the store can't be reached; check that it runs, and AWS_ENDPOINT_URL or AWS_REGION"
    status, code = answered(error)
    advice = _ADVICE.get(code)
    if advice is None and code in _LOST_REGION:
        advice = "the bucket is in another region; set AWS_REGION to the bucket's"
    if advice is None and code in _BAD_CREDENTIALS:
        advice = "the AWS credentials are not accepted; check them, and that they have not expired"
    if advice is None and code in _THROTTLING:
        advice = "the store is throttling; send fewer requests"
    if advice is None and (status == 403 or code == "AccessDeniedException"):
        advice = "the AWS credentials don't permit this; grant it"
    return advice or ("the store refused the request" if 0 < status < 500 else "the store did not answer")


_ADVICE = {
    "NoSuchBucket": "there is no such bucket; create it, or name another",
    "ResourceNotFoundException": "there is no such table; create it, or name another",
    "NotImplemented": "the store lacks what the log needs (conditional creates); use another",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
}
