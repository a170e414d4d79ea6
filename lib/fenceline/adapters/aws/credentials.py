"""AWS sessions, whose credentials and region are found as every AWS tool finds them.

Rule: a problem with credentials is one line that says what to do, in every program. No credential is ever shown.
"""

from __future__ import annotations

from typing import Any, Literal

import botocore.session
from botocore.exceptions import (
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InfiniteLoopConfigError,
    InvalidConfigError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
    UnknownCredentialError,
)

Sdk = Literal["boto3", "botocore"]

NONE_FOUND = "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
_BROKEN = (
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InfiniteLoopConfigError,
    InvalidConfigError,
    MetadataRetrievalError,
    UnknownCredentialError,
)


def new_session(sdk: Sdk = "boto3") -> tuple[Any, Any]:
    """Return the session that makes clients and finds credentials, and botocore's session within it.

    boto3's session would cost a function 19 ms at each cold start of 301 ms of CPU (6 %, ``python -m
    benchmarks.functions``), and its bundle 2.5 MB. A function does without it, because its credentials are its role's,
    which botocore's own session finds, too.

    Raises:
        BotoCoreError: The profile, or the configuration, does not exist or cannot be read.
        ModuleNotFoundError: boto3 is not installed.
    """
    core = botocore.session.get_session()
    if sdk == "botocore":
        return core, core
    import boto3.session  # here, because no function needs it

    return boto3.session.Session(botocore_session=core), core


def advice_of(error: Exception) -> str | None:
    """Return the problem with the credentials and the remedy; ``None`` where they are not to blame."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return NONE_FOUND
    if isinstance(error, ProfileNotFound):
        return "there is no such AWS profile; set AWS_PROFILE to one that the AWS configuration has, or unset it"
    if isinstance(error, SSOError | TokenRetrievalError):
        return "there is no AWS sign-in, or it has expired; run 'aws sso login'"
    if isinstance(error, _BROKEN):
        return "the AWS configuration gives no credentials; check AWS_PROFILE and what its profile names"
    return None


def described(error: Exception) -> str:
    """Return ``error`` in one line, after the remedy."""
    return f"{advice_of(error) or 'the AWS credentials cannot be used'}: error={' '.join(str(error).split())}"
