"""The place of a bucket, and the settings of requests to it, all as botocore finds them.

Rule: requests go to the address to which botocore would send them, which a test compares. Usual settings are read here,
in a hundredth of a millisecond. Only for all others is botocore asked, because that takes a client for S3, and making
one is 0.1 s of CPU, a third of a function's cold start.

Not here: sending requests (``s3_transfer``, ``s3_rest``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Unpack
from urllib.parse import urlsplit

from botocore.awsrequest import AWSResponse
from botocore.exceptions import NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.utils import is_valid_endpoint_url
from urllib3 import HTTPResponse

from fenceline.adapters.aws import credentials
from fenceline.adapters.aws.client import ClientOptions, Failure, make_client, unusable
from fenceline.ports import Unavailable

_SERVICE = "s3"
_USUAL_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_OTHER_BUCKET = ("--x-s3", "-s3alias", "--op-s3", "--table-s3")  # not the names of general purpose buckets
_FIRST_REGION = "us-east-1"  # its endpoint names no region, unless that is configured
_FIRST_REGIONAL = "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT"
_USUAL_REGION = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-\w+-\d+")  # the regions of AWS's first partition
_ANY_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # the first that is set decides
# The settings of a profile that may change the address of requests.
_PLACING = ("endpoint_url", "ignore_configured_endpoint_urls", "s3", "s3_us_east_1_regional_endpoint", "services")
_VARIANTS = ("use_dualstack_endpoint", "use_fips_endpoint", "ignore_configured_endpoint_urls")
_SCOPE = r"AWS4-HMAC-SHA256 Credential=.*/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket's address, with the credentials and certificates of a request to it.

    Args:
        url: The bucket's; a key follows it, after a slash.
        credentials: botocore's; ``None`` where it found none.
        certificates: The file of trusted certificates.
    """

    url: str
    region: str
    credentials: Any
    certificates: str

    def frozen(self) -> Any:
        """Return the credentials as they are now, renewed where they would soon expire.

        Raises:
            NoCredentialsError: There are none.
            BotoCoreError: They could not be renewed.
        """
        if self.credentials is None:
            raise NoCredentialsError
        return self.credentials.get_frozen_credentials()


def place_of(bucket: str, **options: Unpack[ClientOptions]) -> BucketAddress:
    """Return the place of ``bucket``.

    Raises:
        Unavailable: These settings lead nowhere, or the bucket is of a kind that can't hold a log. The message says
            what to do.
        ModuleNotFoundError: boto3 is not installed.
    """
    try:
        _, core = credentials.new_session(options.get("sdk", "boto3"))
        found = _usual(core, bucket, options) or _asked(bucket, options)
        # A name or a path; botocore's own file where none is configured.
        certificates = get_cert_path(core.get_config_variable("ca_bundle") or True)
        return BucketAddress(*found, core.get_credentials(), certificates)
    except (*Failure, ValueError) as error:
        raise unusable(_SERVICE, error) from error


def _usual(core: Any, bucket: str, options: ClientOptions) -> tuple[str, str] | None:
    """Return the bucket's URL and region, if the settings are usual ones."""
    profile: Mapping[str, Any] = core.get_scoped_config()
    if any(name in profile for name in _PLACING) or any(core.get_config_variable(name) for name in _VARIANTS):
        return None
    if not _USUAL_BUCKET.fullmatch(bucket) or bucket.endswith(_OTHER_BUCKET):
        return None
    region = options.get("region") or os.environ.get("AWS_REGION") or core.get_config_variable("region") or ""
    endpoint = options.get("endpoint_url") or next(filter(None, map(os.environ.get, _ENDPOINTS)), None)
    if endpoint is None:
        if not _USUAL_REGION.fullmatch(region) or _FIRST_REGIONAL in os.environ:
            return None
        host = "s3" if region == _FIRST_REGION else f"s3.{region}"
        return f"https://{bucket}.{host}.amazonaws.com", region
    if not is_valid_endpoint_url(endpoint):
        raise ValueError(f"Invalid endpoint: {endpoint}")
    return (f"{endpoint.rstrip('/')}/{bucket}", region) if _ANY_REGION.fullmatch(region) else None


def _asked(bucket: str, options: ClientOptions) -> tuple[str, str]:
    """Return the bucket's URL and region as botocore has them in a request that it makes and does not send."""
    made: list[Any] = []

    def keep(request: Any, **_: Any) -> AWSResponse:
        made.append(request)
        return AWSResponse(request.url, 200, {}, HTTPResponse(BytesIO(), preload_content=False))

    if not bucket.endswith("--x-s3"):  # S3 Express lists in no order
        client = make_client(_SERVICE, options, signature_version="s3v4")
        client.meta.events.register_first("before-send.s3.GetObjectAcl", keep)
        client.get_object_acl(Bucket=bucket, Key="k")
        client.close()
    scope = re.search(_SCOPE, str(made[0].headers.get("authorization", ""))) if made else None
    if scope is None or scope["service"] != _SERVICE:
        raise Unavailable(f"only a general purpose bucket can hold a log; name such a bucket: bucket={bucket}")
    parts = urlsplit(made[0].url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('/k')}", scope["region"]
